"""Time limits of a compilation and of a launch, which a machine that is slower can raise."""

from __future__ import annotations

import os


def compile_seconds() -> float:
    """Return the seconds that one call of a compiler may take: 60, or ``LABKIT_CUDA_COMPILE_SECONDS``."""
    return float(os.environ.get("LABKIT_CUDA_COMPILE_SECONDS", 60))


def launch_seconds() -> float:
    """Return the seconds that a launch may take: 20, or ``LABKIT_CUDA_SECONDS``."""
    return float(os.environ.get("LABKIT_CUDA_SECONDS", "20"))
