"""``AccessLog``: all memory accesses of a launch in compact form, for repeated analysis."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlsys_labkit.triton_trace.interpret.memory import region_number
from mlsys_labkit.triton_trace.launch.client import LaunchOutcome
from mlsys_labkit.triton_trace.recorder import Argument, Kind, Line, Program

Units = NDArray[np.int64]


class Site(NamedTuple):
    """One kind of access of ``itemsize`` bytes per element, on one line; ``order`` is that of RawAccess."""

    kind: Kind
    line: Line
    itemsize: int
    order: str = "acq_rel"


class Shape:
    """The elements of a block relative to its first.

    Attributes:
        offsets: int64 [distinct], in bytes, ascending, each once.
        times: int64 [distinct], lanes that access each. elements: number of lanes.
    """

    def __init__(self, offsets: NDArray[np.int64], times: NDArray[np.int64]) -> None:
        self.offsets = offsets
        self.times = times
        self.elements = int(times.sum())
        self._units: dict[tuple[int, int], Units] = {}

    def units(self, itemsize: int, unit: int) -> Units:
        """Return the offsets in units of ``unit`` bytes, which divides ``itemsize``, each once, ascending."""
        key = itemsize, unit
        if key not in self._units:
            first = self.offsets // unit
            parts = itemsize // unit
            self._units[key] = first if parts == 1 else (first[:, None] + np.arange(parts)).reshape(-1)
        return self._units[key]


@dataclass(frozen=True, eq=False)
class AccessLog:
    """A launch as the counting recorder kept it. An access to two arrays at once is two rows.

    Attributes:
        arguments: the arrays. sites: where in the source.
        site, shape, first, program: int64 [accesses], in the order in which they happened: index into ``sites``; index
            into ``shapes``, -1 where nothing was active; address of the first element; number of the program.
        masked: lanes that were masked off.
        dots: (line, m, n, k, dtype, how often). operations: those on floating-point numbers outside dots, by dtype.
        strays: accesses outside every array; disputes: lanes of one store that disagree; misuses: operations whose
            result no GPU promises. As the recorder wrote them.
    """

    kernel: str
    grid: Program
    arguments: tuple[Argument, ...]
    sites: tuple[Site, ...]
    shapes: tuple[Shape, ...]
    site: NDArray[np.int64]
    shape: NDArray[np.int64]
    first: NDArray[np.int64]
    program: NDArray[np.int64]
    masked: NDArray[np.int64]
    dots: tuple[tuple[Line, int, int, int, str, int], ...]
    operations: dict[str, int]
    strays: tuple[dict[str, Any], ...]
    disputes: tuple[dict[str, Any], ...]
    misuses: tuple[dict[str, Any], ...] = ()

    @staticmethod
    def of(outcome: LaunchOutcome) -> AccessLog:
        """Build a log from the report of ``counting.CountingRecorder``."""
        report, arrays = outcome.report, outcome.arrays
        ends = np.cumsum(arrays["distinct"])
        offsets, times = (np.split(arrays[name], ends[:-1]) if ends.size else [] for name in ("offsets", "times"))
        site, shape, first, program, masked = (np.ascontiguousarray(column) for column in arrays["rows"].T)
        return AccessLog(
            kernel=report["kernel"],
            grid=tuple(report["grid"]),
            arguments=tuple(Argument(**one) for one in report["arguments"]),
            sites=tuple(Site(kind, Line(*line), size, order) for kind, line, size, order in report["sites"]),
            shapes=tuple(Shape(*one) for one in zip(offsets, times, strict=True)),
            site=site,
            shape=shape,
            first=first,
            program=program,
            masked=masked,
            dots=tuple((Line(*line), *rest) for line, *rest in report["dots"]),
            operations=report["operations"],
            strays=tuple(report["strays"]),
            disputes=tuple(report["disputes"]),
            misuses=tuple(report["misuses"]),
        )

    @property
    def programs(self) -> int:
        return self.grid[0] * self.grid[1] * self.grid[2]

    @cached_property
    def region(self) -> NDArray[np.int64]:
        """Return the allocation of each access; -1 where nothing was active."""
        return np.where(self.shape >= 0, region_number(self.first), -1)

    @cached_property
    def elements(self) -> NDArray[np.int64]:
        """Return the active lanes of each access."""
        return np.array([*(shape.elements for shape in self.shapes), 0], np.int64)[self.shape]

    @cached_property
    def itemsize(self) -> NDArray[np.int64]:
        return np.array([site.itemsize for site in self.sites], np.int64)[self.site]

    @cached_property
    def extents(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the first byte that each access touches, and the one past its last."""
        lows = np.array([*(shape.offsets[0] for shape in self.shapes), 0], np.int64)[self.shape]
        highs = np.array([*(shape.offsets[-1] for shape in self.shapes), 0], np.int64)[self.shape]
        return self.first + lows, self.first + highs + self.itemsize

    @cached_property
    def kind(self) -> NDArray[np.str_]:
        return np.array([site.kind for site in self.sites], "<U6")[self.site]

    def rows(self, region: int, *kinds: Kind) -> NDArray[np.int64]:
        """Return the accesses of those kinds to an allocation."""
        return np.flatnonzero((self.region == region) & np.isin(self.kind, kinds))

    def owners(self, region: int) -> tuple[Argument, ...]:
        """Return the arguments that lie in an allocation."""
        return tuple(one for one in self.arguments if region_number(one.start) == region)

    def at(self, program: int) -> Program:
        """Return the program's place in the grid."""
        width, height, _ = self.grid
        return program % width, program // width % height, program // (width * height)
