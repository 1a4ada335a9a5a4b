"""Memory as the operating system and torch's CUDA allocator see it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path


def resident_bytes() -> int | None:
    """The process's resident set; None where /proc is not there."""
    try:
        pages = Path("/proc/self/statm").read_text().split()[1]
    except OSError:
        return None
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


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
