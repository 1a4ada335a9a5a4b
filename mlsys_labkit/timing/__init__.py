"""Timing: ``bench`` for one function, ``compare`` for two. Every result has an interval."""

from __future__ import annotations

from mlsys_labkit.timing.bench import bench
from mlsys_labkit.timing.clock import TimingError
from mlsys_labkit.timing.compare import compare
from mlsys_labkit.timing.record import Comparison, Timing

__all__ = ["Comparison", "Timing", "TimingError", "bench", "compare"]
