"""``trace_raw``: every access of a launch as it happened, for tests and for looking closely."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlsys_labkit.triton_trace.client import Order, Outcome
from mlsys_labkit.triton_trace.launch import Launcher
from mlsys_labkit.triton_trace.recorder import Line, Program

__all__ = ["RawAccess", "trace_raw"]


@dataclass(frozen=True, eq=False)
class RawAccess:
    """One access of one program, as recorder.Recorder.access describes it; ``value`` holds bits."""

    kind: str
    line: Line
    program: Program
    itemsize: int
    addresses: NDArray[np.uint64]
    mask: NDArray[np.bool_] | None
    value: NDArray[Any] | None
    outside: NDArray[np.bool_] | None


class trace_raw:
    """``trace_raw(kernel)[grid](*arguments)``: every access of a small launch, as a list of RawAccess."""

    def __init__(self, kernel: Any, *, order: Order = "ascending", timeout_s: float = 120.0) -> None:
        self._launcher = Launcher(kernel, recorder="recorder:RawRecorder", order=order, timeout_s=timeout_s)

    def __getitem__(self, grid: Any) -> Callable[..., list[RawAccess]]:
        return lambda *args, **kwargs: _accesses(self._launcher.run(grid, args, kwargs))


def _accesses(outcome: Outcome) -> list[RawAccess]:
    found = []
    for i, row in enumerate(outcome.report["rows"]):
        if row["kind"] == "dot":
            continue
        parts = [outcome.arrays.get(f"{i} {name}") for name in ("addresses", "mask", "value", "outside")]
        found.append(
            RawAccess(row["kind"], Line(*row["line"]), tuple(row["program"]), row["itemsize"], *parts)  # type: ignore[arg-type]
        )
    return found
