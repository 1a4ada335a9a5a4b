"""Memory as the process, Python's heap and torch's CUDA allocator see it."""

from __future__ import annotations

import os
import sys
import tracemalloc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from mlsys_labkit.memory.trace import MemoryTrace


def resident_bytes() -> int | None:
    """The process's resident set; None where /proc is not there."""
    try:
        pages = Path("/proc/self/statm").read_text().split()[1]
    except OSError:
        return None
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


_watching: list[MemoryTrace] = []


@contextmanager
def measuring_python(trace: MemoryTrace) -> Iterator[None]:
    """Fill ``trace.python_peak_bytes`` by tracemalloc. Blocks may nest, and tracemalloc may be running already."""
    ours = not tracemalloc.is_tracing()
    if ours:
        tracemalloc.start()
    _note_peak()  # before the reset below takes it from the blocks around this one
    tracemalloc.reset_peak()
    base, outer = tracemalloc.get_traced_memory()[0], list(_watching)
    _watching.append(trace)
    try:
        yield
    finally:
        _note_peak()
        _watching[:] = outer
        trace.python_peak_bytes = max(0, trace.python_peak_bytes - base)
        if ours:
            tracemalloc.stop()


def _note_peak() -> None:
    peak = tracemalloc.get_traced_memory()[1]
    for trace in _watching:
        trace.python_peak_bytes = max(trace.python_peak_bytes, peak)


def reset_cuda_peak() -> None:
    torch = sys.modules["torch"]
    if torch.cuda.is_initialized():
        torch.cuda.reset_peak_memory_stats()


def cuda_figures() -> Mapping[str, int] | None:
    """Bytes that tensors hold of the current CUDA device, bytes that torch holds, and the peaks since the start."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return None
    return {
        "allocated": torch.cuda.memory_allocated(),
        "reserved": torch.cuda.memory_reserved(),
        "peak_allocated": torch.cuda.max_memory_allocated(),
        "peak_reserved": torch.cuda.max_memory_reserved(),
    }
