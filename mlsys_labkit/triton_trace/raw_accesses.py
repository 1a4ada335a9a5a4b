"""``trace_raw``: every access of a small launch, in order, for tests and for close inspection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlsys_labkit.triton_trace.launch.client import LaunchOutcome, Order
from mlsys_labkit.triton_trace.launch.launcher import TritonLauncher
from mlsys_labkit.triton_trace.recorder import Line, RawAccess, Recorder, Report

_ARRAYS = ("addresses", "mask", "value", "outside")


class trace_raw:
    """``trace_raw(kernel)[grid](*arguments)``: every access of a small launch, as a list of RawAccess."""

    def __init__(self, kernel: Any, *, order: Order = "ascending", timeout_s: float = 120.0) -> None:
        self._launcher = TritonLauncher(kernel, recorder="raw_accesses:RawRecorder", order=order, timeout_s=timeout_s)

    def __getitem__(self, grid: Any) -> Callable[..., list[RawAccess]]:
        return lambda *args, **kwargs: _accesses(self._launcher.launch(grid, args, kwargs))


def _accesses(outcome: LaunchOutcome) -> list[RawAccess]:
    found = []
    for i, row in enumerate(outcome.report["rows"]):
        parts: dict[str, Any] = {name: outcome.arrays.get(f"{i} {name}") for name in _ARRAYS}
        parts |= {"line": Line(*row["line"]), "program": tuple(row["program"])}
        found.append(RawAccess(**(row | parts)))
    return found


class RawRecorder(Recorder):
    """A recorder that keeps every access as it came, and nothing else."""

    def __init__(self) -> None:
        self._rows: list[dict[str, Any]] = []
        self._arrays: dict[str, NDArray[Any]] = {}

    def access(self, access: RawAccess) -> None:
        row = access._asdict()
        self._arrays |= {f"{len(self._rows)} {name}": np.array(row[name]) for name in _ARRAYS if row[name] is not None}
        self._rows.append({name: value for name, value in row.items() if name not in _ARRAYS})

    def end(self) -> Report:
        return {"rows": self._rows}, self._arrays
