"""Every allocation of numpy's array data, through the memory handler that numpy lets one install (NEP 49).

tracemalloc sees the same blocks, but tells only a running total that Python's own objects share; the handler is exact
to the byte and tells each block from the next. The handler belongs to a context variable, so other threads keep theirs.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from mlsys_labkit.memory.trace import MemoryTrace, TracedTensor
from mlsys_labkit.memory.user_line import user_line

_MALLOC = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
_CALLOC = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)
_REALLOC = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
_FREE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)

_SET_HANDLER, _GET_HANDLER = 304, 305  # places in numpy's C API table, fixed for good by its ABI


class _Handler(ctypes.Structure):
    """PyDataMem_Handler of numpy/ndarraytypes.h, version 1."""

    _fields_ = (
        ("name", ctypes.c_char * 127),
        ("version", ctypes.c_uint8),
        ("context", ctypes.c_void_p),
        ("malloc", _MALLOC),
        ("calloc", _CALLOC),
        ("realloc", _REALLOC),
        ("free", _FREE),
    )


# Every handler ever installed, by the address of the one its calls now go to. An array keeps its handler for life, so
# the structs are never released (200 B a trace).
_delegates: dict[int, list[_Handler]] = {}


@contextmanager
def tracing_numpy(trace: MemoryTrace) -> Iterator[None]:
    """Record numpy's allocations in ``trace`` while the block runs."""
    set_handler, get_handler, pointer_of, capsule_of = _api()
    outer = get_handler()
    below = ctypes.cast(pointer_of(outer, b"mem_handler"), ctypes.POINTER(_Handler)).contents
    live: dict[int, int] = {}

    def allocated(address: int | None, size: int) -> int | None:
        if address and size:
            line, code = user_line()
            live[address] = trace.allocate(TracedTensor(size, "", None, "cpu", "other", line, code))
        return address

    def freed(address: int | None) -> None:
        index = live.pop(address, None) if address else None
        if index is not None:
            trace.free(index)

    def malloc(_: int, size: int) -> int | None:
        return allocated(below.malloc(below.context, size), size)

    def calloc(_: int, count: int, size: int) -> int | None:
        return allocated(below.calloc(below.context, count, size), count * size)

    def realloc(_: int, address: int | None, size: int) -> int | None:
        moved = below.realloc(below.context, address, size)
        if moved:
            freed(address)
        return allocated(moved, size)

    def free(_: int, address: int | None, size: int) -> None:
        freed(address)
        below.free(below.context, address, size)

    handler = _Handler(b"mlsys_labkit", 1, None, _MALLOC(malloc), _CALLOC(calloc), _REALLOC(realloc), _FREE(free))
    calls = (handler.malloc, handler.calloc, handler.realloc, handler.free)
    set_handler(capsule_of(ctypes.addressof(handler), b"mem_handler", None))
    try:
        yield
    finally:
        set_handler(outer)
        # Arrays made inside are freed later, perhaps while the interpreter shuts down: their calls, and those of traces
        # nested in this one, go straight to the handler below from now on, and no longer through Python.
        done = [handler, *_delegates.pop(ctypes.addressof(handler), [])]
        for one in done:
            one.context, one.malloc, one.calloc = below.context, below.malloc, below.calloc
            one.realloc, one.free = below.realloc, below.free
        _delegates.setdefault(ctypes.addressof(below), []).extend(done)
        del calls


def _api() -> tuple[Any, Any, Any, Any]:
    """PyDataMem_SetHandler and _GetHandler, PyCapsule_GetPointer and _New."""
    python = ctypes.pythonapi
    pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", python))
    capsule_of = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
        ("PyCapsule_New", python)
    )
    core: Any = getattr(np, "_core", None) or np.core
    table = ctypes.cast(pointer_of(core._multiarray_umath._ARRAY_API, None), ctypes.POINTER(ctypes.c_void_p))
    set_handler = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(table[_SET_HANDLER])
    get_handler = ctypes.PYFUNCTYPE(ctypes.py_object)(table[_GET_HANDLER])
    return set_handler, get_handler, pointer_of, capsule_of
