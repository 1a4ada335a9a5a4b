"""``TimeEstimate``: the time of a launch on a GPU by a model, with the parts that it is made of and its error."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape

from mlsys_labkit._base.text_table import text_table
from mlsys_labkit._base.units import plain, si
from mlsys_labkit.cuda.nvidia.occupancy import Occupancy
from mlsys_labkit.cuda.time_model.gpus import PublishedErrors
from mlsys_labkit.timing.record import duration

WITHIN_SM = ("arithmetic", "load-store unit", "latency")
"""Parts that overlap in part, inside an SM; the others, "L2 cache" and "DRAM", overlap with everything."""


@dataclass(frozen=True, repr=False)
class TimeEstimate:
    """An estimate of one launch's time on one GPU. It is a model, not a measurement, and is never used for marks.

    Attributes:
        gpu: key in ``specs``. gpu_name: the product's name.
        seconds: the estimate, without the launch itself (a few microseconds).
        parts: seconds that each resource alone would take, if all others were infinitely fast: "arithmetic",
            "load-store unit", "latency", "L2 cache", "DRAM".
        arithmetic: of "arithmetic", the seconds of each pipe; the longest counts. "issue slots" are all instructions.
        bound: the part that takes longest.
        occupancy: resident blocks and warps of an SM. waves: blocks of the grid over blocks resident on all SMs.
        tail: seconds over those that the same work would take if it could be spread evenly over all SMs.
        l2_bytes, dram_bytes: traffic that was assumed between the SMs and the L2 cache, and to DRAM.
        assumptions: what the estimate assumes, a sentence each.
        errors: of the model on kernels whose times are published.
    """

    kernel: str
    gpu: str
    gpu_name: str
    seconds: float
    parts: Mapping[str, float]
    arithmetic: Mapping[str, float]
    bound: str
    occupancy: Occupancy
    waves: float
    tail: float
    l2_bytes: float
    dram_bytes: float
    assumptions: tuple[str, ...]
    errors: PublishedErrors

    label = "model, not a measurement"

    @property
    def low(self) -> float:
        """Seconds if the model is as slow as it was at worst on a published kernel."""
        return self.seconds / max(1.0, self.errors.highest_ratio)

    @property
    def high(self) -> float:
        """Seconds if the model is as fast as it was at worst."""
        return self.seconds / min(1.0, self.errors.lowest_ratio)

    def __repr__(self) -> str:
        return f"<{self._title()}>"

    def __str__(self) -> str:
        longest = max(self.parts.values(), default=0.0) or 1.0
        rows = [(name, duration(seconds), _bar(seconds / longest)) for name, seconds in self.parts.items()]
        return "\n".join([self._title(), self._error(), *text_table(rows, right=[1]), *self._notes()])

    def _repr_html_(self) -> str:
        longest = max(self.parts.values(), default=0.0) or 1.0
        rows = "".join(
            f'<tr><td>{escape(name)}</td><td style="text-align:right">{escape(duration(seconds))}</td>'
            f"<td>{_bar(seconds / longest)}</td></tr>"
            for name, seconds in self.parts.items()
        )
        notes = "".join(f"<div>{escape(note)}</div>" for note in self._notes())
        head = f"<b>{escape(self._title())}</b><div>{escape(self._error())}</div>"
        return f"<div>{head}<table>{rows}</table>{notes}</div>"

    def _title(self) -> str:
        return f"{self.kernel} on {self.gpu_name}: about {duration(self.seconds)} ({self.label})"

    def _error(self) -> str:
        known = self.errors
        return (
            f"{self.label}: ±{100 * known.largest_error:.0f} % on {known.kernels} published kernels (matrix products "
            f"on {known.gpus} GPUs), half of them within {100 * known.median_error:.0f} %; if this one is like them, "
            f"{duration(self.low)} to {duration(self.high)}"
        )

    def _notes(self) -> list[str]:
        pipe = max(self.arithmetic, key=lambda name: self.arithmetic[name], default="none")
        return [
            f"decided by: {self.bound}; busiest part of arithmetic: {pipe}",
            f"{self.occupancy}",
            f"{plain(self.waves)} waves of blocks; uneven blocks per SM cost a factor of {plain(self.tail)}",
            f"assumed traffic: {si(self.l2_bytes, 'B')} from L2, {si(self.dram_bytes, 'B')} from DRAM",
            *self.assumptions,
        ]


def _bar(share: float) -> str:
    return "█" * round(24 * share)
