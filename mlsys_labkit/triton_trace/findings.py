"""What is wrong with a launch, or slow, or worth knowing, read out of its log."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlsys_labkit.triton_trace.board import Board
from mlsys_labkit.triton_trace.finding import Finding, Severity
from mlsys_labkit.triton_trace.log import Log, region_of
from mlsys_labkit.triton_trace.races import races
from mlsys_labkit.triton_trace.recorder import Argument
from mlsys_labkit.triton_trace.repeats import repeats
from mlsys_labkit.triton_trace.source import KernelSource

__all__ = ["findings"]

_VERB = {"load": "reads", "store": "writes", "atomic": "updates"}
_AGAIN = {"load": ("loaded", "loads"), "store": ("stored", "stores")}


def findings(log: Log, source: KernelSource) -> tuple[Finding, ...]:
    """Errors first, then what costs time, then what is worth knowing."""
    teller = _Teller(log, source)
    return (
        *teller.strays(),
        *teller.gaps(),
        *teller.races(),
        *teller.disputes(),
        *teller.repeats(),
        *teller.unwritten(),
    )


class _Teller:
    """Puts what the log holds into words."""

    def __init__(self, log: Log, source: KernelSource) -> None:
        self._log = log
        self._source = source

    def strays(self) -> list[Finding]:
        """Outside every array. A block that begins inside and ends outside lacks a mask; an array that is left with
        holes while others lie beyond its end was walked with a wrong stride."""
        log, found = self._log, []
        for row in log.strays:
            site = log.sites[row["site"]]
            owners = log.owners(row["region"])
            near = min(owners, key=lambda one: abs(one.address - row["address"]), default=None)
            kind, advice = "out_of_bounds", "where should it point?"
            name, element, what = "", None, f"an address that belongs to no argument, {row['address']:#x}"
            if near:
                name, element = near.name, (row["address"] - near.address) // near.itemsize
                what = f"{name}[{element}], and {name} has {math.prod(near.shape):,} elements"
                if self._holes(near, row["region"], site.kind):
                    kind, advice = "wrong_stride", "it leaves out elements inside: check the strides"
                elif row["whole_blocks"] < row["blocks"]:
                    advice = "give it a mask"
                else:
                    advice = "whole blocks lie outside: check the offset, or the grid"
            total = f"{row['count']:,} elements in all; " if row["count"] > 1 else ""
            found.append(
                self._finding(
                    kind,
                    "error",
                    f"program {tuple(row['program'])} {_VERB[site.kind]} {what} ({total}{advice})",
                    row["site"],
                    program=tuple(row["program"]),
                    array=name,
                    element=element,
                    count=row["count"],
                )
            )
        return found

    def gaps(self) -> list[Finding]:
        """Between the elements of a strided array: memory that is there and belongs to something else."""
        log, found = self._log, []
        for region in {region_of(one.start) for one in log.arguments if _has_gaps(one)}:
            rows = log.rows(region, "load", "store", "atomic")
            if not rows.size:
                continue
            board = Board(log, rows)
            between = board.marks()
            for owner in log.owners(region):
                own = board.find(_addresses(owner, board.unit))
                between[own[own >= 0]] = False
            if not between.any():
                continue
            for site in np.unique(log.site[rows]).tolist():
                hits = [(row, at[between[at]]) for row, at in board.places(rows[log.site[rows] == site])]
                hits = [(row, at) for row, at in hits if at.size]
                if not hits:
                    continue
                row, at = hits[0]
                array = log.owners(region)[0]
                count = sum(at.size for _, at in hits) * board.unit // log.sites[site].itemsize
                program = log.at(int(log.program[row]))
                behind = int(board.addresses[at[0]] - array.address)
                steps = " x ".join(str(step // array.itemsize) for step in array.strides)
                found.append(
                    self._finding(
                        "wrong_stride",
                        "error",
                        f"program {program} {_VERB[log.sites[site].kind]} between the rows of {array.name}, "
                        f"{behind // array.itemsize:,} elements from its first ({count:,} elements in all; its strides "
                        f"are {steps})",
                        site,
                        program=program,
                        array=array.name,
                        element=behind // array.itemsize,
                        count=count,
                    )
                )
        return found

    def races(self) -> list[Finding]:
        log, found = self._log, []
        for race in races(log):
            one, two = (log.sites[log.site[row]].kind for row in (race.earlier, race.later))
            first, second = (log.at(int(log.program[row])) for row in (race.earlier, race.later))
            array, element = self._place(race.region, race.address)
            does = f"{_VERB[one]}, program {second} {_VERB[two]}"
            if one == two:
                does = f"and program {second} both {_VERB[one].rstrip('s')}"
            count = race.bytes // self._size(array)
            total = f" ({count:,} elements in all)" if count > 1 else ""
            found.append(
                self._finding(
                    "race",
                    "error",
                    f"program {first} {does} {array}[{element}], in no order{total}",
                    int(log.site[race.earlier]),
                    program=first,
                    other=int(log.site[race.later]),
                    other_program=second,
                    array=array,
                    element=element,
                    count=count,
                )
            )
        return found

    def disputes(self) -> list[Finding]:
        log, found = self._log, []
        for row in log.disputes:
            array, element = self._place(int(region_of(row["address"])), row["address"])
            program = tuple(row["program"])
            found.append(
                self._finding(
                    "conflicting_store",
                    "error",
                    f"lanes of one store of program {program} write different values to {array}[{element}]",
                    row["site"],
                    program=program,
                    array=array,
                    element=element,
                    count=row["count"],
                )
            )
        return found

    def repeats(self) -> list[Finding]:
        log, found = self._log, []
        for one in repeats(log):
            array, element = self._place(one.region, int(log.extents[0][one.later]))
            program = log.at(int(log.program[one.later]))
            past, present = _AGAIN[one.kind]
            who = f"each of {one.programs:,} programs" if one.programs > 1 else f"program {program}"
            found.append(
                self._finding(
                    f"repeated_{one.kind}",
                    "performance",
                    f"{who} {present} bytes of {array} that it had {past} before ({one.bytes:,} bytes in all)",
                    int(log.site[one.earlier]),
                    program=program,
                    other=int(log.site[one.later]),
                    other_program=program,
                    array=array,
                    element=element,
                    count=one.bytes // self._size(array),
                )
            )
        return found

    def unwritten(self) -> list[Finding]:
        """Elements of an array that is stored to, which no program stores to."""
        log, found = self._log, []
        for one in log.arguments:
            rows = log.rows(region_of(one.start), "store")
            rows = rows[(log.extents[0][rows] < one.stop) & (log.extents[1][rows] > one.start)]
            if not rows.size:
                continue
            left = self._untouched(one, rows)
            if left.size:
                last = rows[-1]
                found.append(
                    self._finding(
                        "unwritten",
                        "information",
                        f"{left.size:,} of {math.prod(one.shape):,} elements of {one.name} are not stored to, "
                        f"{one.name}[{left[0]}] the first of them",
                        int(log.site[last]),
                        array=one.name,
                        element=int(left[0]),
                        count=int(left.size),
                    )
                )
        return found

    def _holes(self, argument: Argument, region: int, kind: Any) -> bool:
        """Are there elements of an array that nothing of this kind touches, before others that it does?"""
        rows = self._log.rows(region, kind)
        if not rows.size:
            return False
        last = int(self._log.extents[1][rows].max())
        untouched = _addresses(argument, argument.itemsize)[self._untouched(argument, rows)]
        return bool((untouched < last).any())

    def _untouched(self, argument: Argument, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Numbers, in the flattened array, of the elements of which no byte is touched."""
        board = Board(self._log, rows)
        marks = board.marks()
        if marks.all() and board.addresses[0] <= argument.start and argument.stop <= board.addresses[-1] + board.unit:
            return np.empty(0, np.int64)
        at = board.find(_addresses(argument, argument.itemsize))
        return np.flatnonzero(~(marks[at] & (at >= 0)))

    def _place(self, region: int, address: int) -> tuple[str, int]:
        """An address as an array and an element of it."""
        owners = self._log.owners(region)
        inside = [one for one in owners if one.start <= address < one.stop] or list(owners)
        return inside[0].name, (address - inside[0].address) // inside[0].itemsize

    def _size(self, array: str) -> int:
        return next(one.itemsize for one in self._log.arguments if one.name == array)

    def _finding(self, kind: str, severity: Severity, message: str, site: int, other: int = -1, **rest: Any) -> Finding:
        line = self._log.sites[site].line
        second = self._log.sites[other].line if other >= 0 else None
        return Finding(
            kind,
            severity,
            message,
            line,
            self._source.line_text(*line),
            other_line=second,
            other_source_line=self._source.line_text(*second) if second else "",
            **rest,
        )


def _has_gaps(argument: Argument) -> bool:
    return math.prod(argument.shape) * argument.itemsize < argument.stop - argument.start


def _addresses(argument: Argument, unit: int) -> NDArray[np.int64]:
    """Of every unit of every element, element by element as numpy would flatten the array."""
    at = np.array([argument.address], np.int64)
    for length, step in zip(argument.shape, argument.strides, strict=True):
        at = (at[:, None] + np.arange(length) * step).reshape(-1)
    return at if unit >= argument.itemsize else (at[:, None] + np.arange(0, argument.itemsize, unit)).reshape(-1)
