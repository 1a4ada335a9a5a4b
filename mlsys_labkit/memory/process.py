"""Memory of this process according to the operating system and to torch's CUDA allocator."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Mapping
from pathlib import Path

_M_MMAP_THRESHOLD = -3  # malloc.h
LEAST_MAPPED_BYTES, MOST_MAPPED_BYTES = 128 << 10, 32 << 20  # between these glibc moves its threshold


def resident_bytes() -> int | None:
    """Return the resident set size of this process in bytes; None where /proc does not have it."""
    try:  # not of /proc/self, which is the first process's for all processes of a graded rank's sandbox
        pages = Path(f"/proc/{os.getpid()}/statm").read_text().split()[1]
    except OSError:
        return None
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def map_from(threshold_bytes: int) -> None:
    """Make the allocator give each buffer of this size pages of its own, which go back to the system when it is freed.

    glibc raises its threshold with the first large buffer that is freed. Later ones lie on the heap, where a tracer's
    small objects keep them from being used again, and the resident set grows with each of them.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):  # musl has no mallopt
            ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, threshold_bytes)


def reset_cuda_peak() -> None:
    torch = sys.modules["torch"]
    if torch.cuda.is_initialized():
        torch.cuda.reset_peak_memory_stats()


def cuda_figures() -> Mapping[str, int] | None:
    """Return the bytes that tensors hold on the current CUDA device, those that torch has reserved, and both peaks.

    Return None if torch has not initialised CUDA.
    """
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return None
    return {
        "allocated": torch.cuda.memory_allocated(),
        "reserved": torch.cuda.memory_reserved(),
        "peak_allocated": torch.cuda.max_memory_allocated(),
        "peak_reserved": torch.cuda.max_memory_reserved(),
    }
