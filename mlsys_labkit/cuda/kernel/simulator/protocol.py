"""The memory that notebook and worker share: ``native/runtime/protocol.h`` as ctypes structures.

``Hello`` carries the worker's own sizes, so that a difference in layout is an error at the start.
"""

from __future__ import annotations

import ctypes
from ctypes import c_char, c_double, c_ubyte, c_uint32, c_uint64
from enum import IntEnum

from mlsys_labkit.cuda.kernel.simulator.decode import RECORDS

VERSION = 1
PAYLOAD_BYTES = 64 << 10
MOST_VARIABLES = 2500  # of a module, so that they fit behind its path
OUTPUT_BYTES = 1 << 20
RESULT_BYTES = 256 << 20
CHANGES = 4096
HEAP_BYTES = (64 << 20) + (64 << 10)  # of malloc in kernels, behind the arena in its file
REFUSED, OUT_OF_MAPPINGS = 1, 2  # Reply.failed
SECTIONS = ("findings", "sites", "steps", "samples", "totals")
MODES = {"run": 0, "check": 1, "profile": 2}


class Command(IntEnum):
    SYNC = 1
    LOAD = 2
    LAUNCH = 3


class Hello(ctypes.Structure):
    _fields_ = (
        ("version", c_uint32),
        ("size_of_change", c_uint32),
        ("size_of_request", c_uint32),
        ("size_of_reply", c_uint32),
        ("size_of_control", c_uint32),
        ("size_of_records", c_uint32 * len(SECTIONS)),
        ("arena_address", c_uint64),
        ("heap_bytes", c_uint64),
        ("reserved", c_uint64),
    )


class BufferChange(ctypes.Structure):
    _fields_ = (("offset", c_uint64), ("bytes", c_uint64))


class RequestStruct(ctypes.Structure):
    _fields_ = (
        ("command", c_uint32),
        ("changes", c_uint32),
        ("module", c_uint32),
        ("kernel", c_uint32),
        ("grid", c_uint32 * 3),
        ("block", c_uint32 * 3),
        ("shared_bytes", c_uint32),
        ("mode", c_uint32),
        ("arguments", c_uint32),
        ("payload_bytes", c_uint32),
        ("reserved", c_uint32 * 2),
        ("sequence", c_uint64),
        ("seed", c_uint64),
        ("sample_blocks", c_uint64),
        ("timeout_seconds", c_double),
    )


class Section(ctypes.Structure):
    _fields_ = (("offset", c_uint64), ("bytes", c_uint64))


class Reply(ctypes.Structure):
    _fields_ = (
        ("failed", c_uint32),
        ("module", c_uint32),
        ("text_address", c_uint64),
        ("text_bytes", c_uint64),
        ("seconds", c_double),
        ("sections", Section * len(SECTIONS)),
        ("error", c_char * 1024),
    )


class OutputStruct(ctypes.Structure):
    _fields_ = (("bytes", c_uint64), ("dropped", c_uint64), ("text", c_char * OUTPUT_BYTES))


class Control(ctypes.Structure):
    _fields_ = (
        ("hello", Hello),
        ("request", RequestStruct),
        ("reply", Reply),
        ("changes", BufferChange * CHANGES),
        ("payload", c_ubyte * PAYLOAD_BYTES),
        ("output", OutputStruct),
        ("results", c_ubyte * RESULT_BYTES),
    )


def own_sizes() -> dict[str, int | tuple[int, ...]]:
    """Return sizes in bytes that the worker's Hello has to agree with, those of the records included."""
    return {
        "version": VERSION,
        "size_of_change": ctypes.sizeof(BufferChange),
        "size_of_request": ctypes.sizeof(RequestStruct),
        "size_of_reply": ctypes.sizeof(Reply),
        "size_of_control": ctypes.sizeof(Control),
        "size_of_records": tuple(RECORDS[section].itemsize for section in SECTIONS),
        "heap_bytes": HEAP_BYTES,
    }


def workers_sizes(control: Control) -> dict[str, int | tuple[int, ...]]:
    """Return the same sizes, as the worker was compiled with."""
    hello = control.hello
    sizes = {name: getattr(hello, name) for name in own_sizes()}
    return {**sizes, "size_of_records": tuple(hello.size_of_records)}
