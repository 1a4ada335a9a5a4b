"""Memory of this process according to the operating system and to torch's CUDA allocator."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path


def resident_bytes() -> int | None:
    """Return the resident set size of this process in bytes; None where there is no /proc."""
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
