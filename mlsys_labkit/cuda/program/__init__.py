"""Whole CUDA programs: a ``.cu`` file with a main of its own, run on the simulator or on a GPU."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_HOME = {"Launch": "result", "ProgramResult": "result", "run_program": "run"}

__all__ = ["Launch", "ProgramResult", "run_program"]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


if TYPE_CHECKING:
    from mlsys_labkit.cuda.program.result import Launch, ProgramResult
    from mlsys_labkit.cuda.program.run import run_program
