"""Whole CUDA programs: a ``.cu`` file with a main of its own, run on the simulator or on a GPU."""

from __future__ import annotations

from mlsys_labkit.cuda.program.result import Launch, ProgramResult
from mlsys_labkit.cuda.program.run import run_program

__all__ = ["Launch", "ProgramResult", "run_program"]
