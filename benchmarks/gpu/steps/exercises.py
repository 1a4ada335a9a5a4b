"""Step ``exercises``: the tests of the CUDA labs, cell by cell, with every graded kernel launched on the GPU.

Marks come from the simulator on every machine. Here the same tests judge what the hardware wrote: where the simulator
and the GPU differ, a test fails that passes in the simulator.
"""

from __future__ import annotations

import copy
import importlib
from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.gpu.cases import Case, kit_on_gpu
from benchmarks.gpu.cells import lab_path, run_cells

LABS = ("lab10", "lab03", "lab04")


def cases() -> list[Case]:
    return [Case(lab, partial(run_exercises, lab), 120, alone=True) for lab in LABS]


class LaunchesOnGpu:
    """A graded kernel whose launches run on the GPU; its counters are still the simulator's."""

    def __init__(self, on_gpu: Any, graded: Any) -> None:
        self._on_gpu, self._graded = on_gpu, graded
        self.profile = _Launches(self._profile)
        self.check = _Launches(self._check)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._graded, name)

    def __getitem__(self, shape: Any) -> Any:
        return self._on_gpu[shape]

    def _profile(self, shape: Any, *arguments: Any) -> Any:
        profile = self._graded.profile[shape](*copy.deepcopy(arguments))
        self._on_gpu[shape](*arguments)
        return profile

    def _check(self, shape: Any, *arguments: Any) -> tuple[()]:
        self._on_gpu[shape](*arguments)
        return ()


class _Launches:
    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call

    def __getitem__(self, shape: Any) -> Any:
        return partial(self._call, shape)


def run_exercises(lab: str) -> dict[str, Any]:
    """Run the cells of one solution, and return the cells that fail and the kernels that the GPU ran."""
    kit_on_gpu()
    launched: list[str] = []
    checks: Any = importlib.import_module("mlsys_labkit.checks")
    compilation = importlib.import_module("mlsys_labkit.cuda.kernel.compilation")
    graded_kernel = checks.graded_kernel

    def graded_on_gpu(kernel: Any, name: str | None = None) -> LaunchesOnGpu:
        graded = graded_kernel(kernel, name)
        launched.append(graded.name)
        made = compilation.compile(graded.source, graded.name, backend="gpu", defines=dict(graded._defines))
        return LaunchesOnGpu(made, graded)

    def launch_all(kernel: Any, *launches: tuple[Any, ...], name: str = "") -> None:
        for grid, block, *shared_bytes, arguments in launches:
            kernel[(grid, block, *shared_bytes)](*arguments)

    checks.graded_kernel, checks.expect_clean = graded_on_gpu, launch_all
    runs = [*run_cells(lab_path(lab))]
    failed = [
        {"line": run.cell.line, "task": run.cell.grade_id, "error": run.error, "at": run.at}
        for run in runs
        if run.error
    ]
    return {"ok": bool(launched) and not failed, "failed": failed, "cells": len(runs), "kernels": [*{*launched}]}
