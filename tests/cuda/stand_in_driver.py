"""A GPU in host memory beneath NVIDIA's own cuda-core and cuda-bindings, which load it as libcuda.so.1.

Its kernels are Python functions by symbol. As strict as the real one where tests need it: addresses outside any
allocation, modules that are no cubin, and shared memory nobody opted in to are errors of the driver. A kernel that
raises LookupError faults, TrapError traps, and EndlessError does not end: then only a query returns, and no wait.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import enum
import functools
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

Launched = SimpleNamespace
KernelBody = Callable[[Launched], None]

REASON = "this machine has NVIDIA's driver, which no stand-in can replace" if ctypes.util.find_library("cuda") else ""


class TrapError(Exception):
    """The end of a kernel by ``__trap()``."""


class EndlessError(Exception):
    """The state of a kernel that does not end."""


class CUresult(enum.IntEnum):
    """Errors by the numbers of cuda.h."""

    CUDA_SUCCESS = 0
    CUDA_ERROR_INVALID_VALUE = 1
    CUDA_ERROR_OUT_OF_MEMORY = 2
    CUDA_ERROR_INVALID_IMAGE = 200
    CUDA_ERROR_NOT_FOUND = 500
    CUDA_ERROR_NOT_READY = 600
    CUDA_ERROR_ILLEGAL_ADDRESS = 700
    CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES = 701
    CUDA_ERROR_ASSERT = 710
    CUDA_ERROR_LAUNCH_FAILED = 719


class _Launch(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("cooperative", ctypes.c_int),
        ("stream", ctypes.c_void_p),
        ("arguments", ctypes.POINTER(ctypes.c_void_p)),
        ("ms", ctypes.c_float),
    )


_Status = ctypes.CFUNCTYPE(ctypes.c_int)
_Allocate = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_size_t, ctypes.POINTER(ctypes.c_uint64))
_Release = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint64)
_Copy = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_size_t, ctypes.c_uint64, ctypes.c_void_p
)
_Start = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_Launch))
_Allow = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.c_int)
_Name = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int)
_NAMES = {int(each): ctypes.create_string_buffer(each.name.encode()) for each in CUresult}


class DriverInMemory:
    """State of the device.

    ``kernels`` are bodies by symbol, ``launches`` the launches requested, ``copies`` the streams of copies.
    """

    def __init__(self, kernels: dict[str, KernelBody] | None = None, memory_bytes: int = 1 << 30) -> None:
        self.kernels = kernels or {}
        self.launches: list[Launched] = []
        self.copies: list[int | None] = []
        self.endless = False
        self.live: dict[int, Any] = {}
        self.memory_bytes = memory_bytes
        self.failing = CUresult.CUDA_SUCCESS  # what every call answers from now on: an error that sticks
        self.next_launch = CUresult.CUDA_SUCCESS
        self.shared_allowed: dict[str, int] = {}
        self._hooks = (
            _Status(self._wait),
            _Allocate(self._allocate),
            _Release(self._release),
            _Copy(self._copy),
            _Start(self._launch),
            _Allow(self._allow_shared),
            _Name(lambda error: ctypes.addressof(_NAMES.get(error, _NAMES[500]))),
            _Status(lambda: CUresult.CUDA_ERROR_NOT_READY if self.endless else self.failing),
        )
        table = (ctypes.c_void_p * len(self._hooks))(
            *(ctypes.cast(each, ctypes.c_void_p).value for each in self._hooks)
        )
        _library().set_hooks(table)

    def array(self, address: int, dtype: Any, count: int) -> np.ndarray:
        """Return a range of device memory, or raise LookupError where nothing is allocated."""
        nbytes = np.dtype(dtype).itemsize * count
        if not any(start <= address and address + nbytes <= start + len(raw) for start, raw in self.live.items()):
            raise LookupError("outside every allocation")
        return np.frombuffer((ctypes.c_char * nbytes).from_address(address), dtype)

    def allocate(self, nbytes: int) -> int:
        """Return the address of memory that no kernel of the kit owns."""
        raw = (ctypes.c_char * nbytes)()
        self.live[ctypes.addressof(raw)] = raw
        return ctypes.addressof(raw)

    def _wait(self) -> int:
        while self.endless:
            time.sleep(0.01)
        return self.failing

    def _allocate(self, size: int, made: Any) -> int:
        if self.failing:
            return self.failing
        if sum(map(len, self.live.values())) + size > self.memory_bytes:
            return CUresult.CUDA_ERROR_OUT_OF_MEMORY
        made[0] = self.allocate(size)
        return 0

    def _release(self, memory: int) -> int:
        self.live.pop(memory, None)
        return self.failing

    def _copy(self, to: int, source: int, size: int, device: int, stream: int | None) -> int:
        self.copies.append(stream)
        if self._wait():
            return self.failing
        try:
            self.array(device, np.uint8, size)
        except LookupError:
            return CUresult.CUDA_ERROR_INVALID_VALUE
        ctypes.memmove(to, source, size)
        return 0

    def _allow_shared(self, name: bytes, nbytes: int) -> int:
        self.shared_allowed[name.decode()] = nbytes
        return 0

    def _launch(self, launch: Any) -> int:
        asked = launch.contents
        symbol, arguments = asked.name.decode(), asked.arguments
        if self.failing:
            return self.failing
        if self.next_launch:
            status, self.next_launch = self.next_launch, CUresult.CUDA_SUCCESS
            return status
        if asked.shared > self.shared_allowed.get(symbol, 48 << 10):
            return CUresult.CUDA_ERROR_INVALID_VALUE
        launched = SimpleNamespace(
            symbol=symbol,
            grid=tuple(asked.grid),
            block=tuple(asked.block),
            shared=asked.shared,
            stream=asked.stream,
            cooperative=bool(asked.cooperative),
            argument=lambda index, ctype: ctypes.cast(arguments[index], ctypes.POINTER(ctype)).contents,
            gpu=self,
        )
        if symbol == "_Z4spinx":
            asked.ms = launched.argument(0, ctypes.c_longlong).value / 2e6
            return 0
        self.launches.append(launched)
        try:
            self.kernels[symbol](launched)
        except LookupError:
            self.failing = CUresult.CUDA_ERROR_ILLEGAL_ADDRESS  # asynchronous: the next call returns it
        except TrapError:
            self.failing = CUresult.CUDA_ERROR_LAUNCH_FAILED
        except EndlessError:
            self.endless = True
        return 0


@functools.cache
def _library() -> ctypes.CDLL:
    """Return the library, which the process keeps: cuda-bindings finds it by its name."""
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder, "libcuda.so.1")
        source = Path(__file__).with_suffix(".c")
        words = ["gcc", "-shared", "-fPIC", "-O1", "-Wl,-soname,libcuda.so.1", "-o", str(made), str(source), "-ldl"]
        subprocess.run(words, check=True)
        return ctypes.CDLL(str(made), ctypes.RTLD_GLOBAL)
