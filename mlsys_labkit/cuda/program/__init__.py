"""Whole CUDA programs: a ``.cu`` file with a main of its own, run on the simulator or on a GPU."""

from __future__ import annotations

from mlsys_labkit._base.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
