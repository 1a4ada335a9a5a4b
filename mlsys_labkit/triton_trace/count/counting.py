"""The recorder behind ``trace``: keeps every access of a launch as a shared shape and the address where it lies.

A block of a kernel has the same shape in nearly every program, and only its first address differs. So a launch is kept
as a few shapes and five numbers per access, which log.py reads.
"""

from __future__ import annotations

from array import array
from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlsys_labkit.triton_trace.interpret.memory import DISTANCE, region_number
from mlsys_labkit.triton_trace.recorder import Kind, Line, Program, RawAccess, Report, Severity, TracedLaunch


class _Shape:
    """Positions of the active elements of an access, relative to the first of them."""

    def __init__(self, number: int, relative: NDArray[np.int64]) -> None:
        self.number = number
        self.relative = relative
        self.offsets, self.times = np.unique(relative, return_counts=True)
        self.repeats = self.offsets.size < relative.size
        self.scattered = bool(self.offsets[-1] - self.offsets[0] >= DISTANCE // 2)  # over several arrays


class CountingRecorder:
    """A recorder whose report ``log.Log.of`` reads."""

    def __init__(self) -> None:
        self._sites: dict[tuple[Kind, Line, int, str], int] = {}
        self._shapes: dict[tuple[int, bytes], _Shape] = {}
        self._recent: dict[int, _Shape] = {}
        self._rows = array("q")
        self._dots: Counter[tuple[Line, int, int, int, str]] = Counter()
        self._strays: dict[tuple[int, int], dict[str, Any]] = {}
        self._disputes: dict[int, dict[str, Any]] = {}
        self._misuses: dict[tuple[str, Line], dict[str, Any]] = {}

    def begin(self, launch: TracedLaunch) -> None:
        self._launch = launch

    def access(self, access: RawAccess) -> None:
        kind, line, program, itemsize, addresses, inside, value, outside, order = access
        site = self._sites.setdefault((kind, line, itemsize, order), len(self._sites))
        active = addresses.reshape(-1) if inside is None else addresses[inside]
        masked = addresses.size - active.size
        if outside is not None:
            strays = addresses[outside]
            self._note_strays(site, program, strays, active.size == strays.size)
            inside = ~outside if inside is None else inside & ~outside
            active = addresses[inside]
        if not active.size:
            self._append(site, -1, 0, program, masked)
            return
        shape = self._shape(site, itemsize, active)
        if shape.scattered:
            self._split(site, itemsize, active, program, masked)
        else:
            self._append(site, shape.number, int(active[0]), program, masked)
        if value is not None and kind == "store" and shape.repeats:
            chosen = np.broadcast_to(value, addresses.shape)
            self._note_dispute(site, program, active, chosen.reshape(-1) if inside is None else chosen[inside])

    def dot(self, line: Line, program: Program, m: int, n: int, k: int, dtype: str) -> None:
        self._dots[line, m, n, k, dtype] += 1

    def arithmetic(self, operations: dict[str, int]) -> None:
        self._operations = operations

    def misuse(
        self, finding: tuple[str, Severity], line: Line, program: Program, message: str, other: Line, count: int
    ) -> None:
        kind, severity = finding
        row = {"kind": kind, "severity": severity, "line": line, "program": program, "message": message}
        self._misuses.setdefault((kind, line), {**row, "other": other, "count": 0})["count"] += count

    def end(self) -> Report:
        shapes = list(self._shapes.values())
        report = {
            "kernel": self._launch.kernel,
            "grid": self._launch.grid,
            "arguments": [vars(one) for one in self._launch.arguments],
            "sites": list(self._sites),
            "dots": [(*key, count) for key, count in self._dots.items()],
            "operations": self._operations,
            "strays": list(self._strays.values()),
            "disputes": list(self._disputes.values()),
            "misuses": list(self._misuses.values()),
        }
        nothing = np.empty(0, np.int64)
        arrays = {
            "rows": np.frombuffer(self._rows, np.int64).reshape(-1, 5) if self._rows else nothing.reshape(0, 5),
            "offsets": np.concatenate([nothing, *(shape.offsets for shape in shapes)]),
            "times": np.concatenate([nothing, *(shape.times for shape in shapes)]),
            "distinct": np.array([shape.offsets.size for shape in shapes], np.int64),
        }
        return report, arrays

    def _append(self, site: int, shape: int, first: int, program: Program, masked: int) -> None:
        x, y, z = program
        width, height, _ = self._launch.grid
        self._rows.extend((site, shape, first, x + width * (y + height * z), masked))

    def _shape(self, site: int, itemsize: int, active: NDArray[np.uint64]) -> _Shape:
        relative = (active - active[0]).view(np.int64)
        recent = self._recent.get(site)
        if recent is not None and np.array_equal(recent.relative, relative):
            return recent
        key = itemsize, relative.tobytes()
        shape = self._shapes.get(key)
        if shape is None:
            shape = self._shapes[key] = _Shape(len(self._shapes), relative)
        self._recent[site] = shape
        return shape

    def _split(self, site: int, itemsize: int, active: NDArray[np.uint64], program: Program, masked: int) -> None:
        """Append one row per array for an access to several arrays at once."""
        region = region_number(active.view(np.int64))
        for one in np.unique(region):
            part = active[region == one]
            self._append(site, self._shape(site, itemsize, part).number, int(part[0]), program, masked)
            masked = 0

    def _note_strays(self, site: int, program: Program, strays: NDArray[np.uint64], wholly: bool) -> None:
        region = region_number(strays.view(np.int64))
        for one in np.unique(region):
            found = strays[region == one]
            row: dict[str, Any] = {"site": site, "region": int(one), "program": program, "address": int(found[0])}
            row = self._strays.setdefault((site, int(one)), row | {"count": 0, "blocks": 0, "whole_blocks": 0})
            row["count"] += found.size
            row["blocks"] += 1
            row["whole_blocks"] += wholly

    def _note_dispute(self, site: int, program: Program, active: NDArray[np.uint64], value: NDArray[Any]) -> None:
        """Count pairs of lanes of one store that put different bits into one element."""
        order = np.argsort(active, kind="stable")
        where, what = active[order], np.ascontiguousarray(value[order])
        bits = what.view(f"u{what.itemsize}")
        differing = np.flatnonzero((where[1:] == where[:-1]) & (bits[1:] != bits[:-1]))
        if differing.size:
            row: dict[str, Any] = {"site": site, "program": program, "address": int(where[differing[0]]), "count": 0}
            row = self._disputes.setdefault(site, row)
            row["count"] += int(differing.size)
