"""Findings of a launch: errors, slow accesses and information, computed from its log."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlsys_labkit.triton_trace.count.allocation_units import Board
from mlsys_labkit.triton_trace.count.finding import AccessFinding
from mlsys_labkit.triton_trace.count.log import AccessLog
from mlsys_labkit.triton_trace.count.races import races
from mlsys_labkit.triton_trace.count.repeats import repeats
from mlsys_labkit.triton_trace.interpret.memory import region_number
from mlsys_labkit.triton_trace.recorder import Argument, Line, Severity
from mlsys_labkit.triton_trace.source import KernelSource

_VERB = {"load": "reads", "store": "writes", "atomic": "updates"}
_SEVERITIES = ("error", "performance", "information")
_AGAIN = {"load": ("loaded", "loads"), "store": ("stored", "stores")}


def findings(log: AccessLog, source: KernelSource) -> tuple[AccessFinding, ...]:
    """Return errors first, then what costs time, then information."""
    found = _Findings(log, source)
    errors = (found.misuses, found.strays, found.gaps, found.races, found.disputes)
    made = [one for kind in (*errors, found.repeats, found.unwritten) for one in kind()]
    explained = {one.array for one in made if one.severity == "error"}
    made += [one for one in found.unread() if one.array not in explained]
    return tuple(sorted(made, key=lambda one: _SEVERITIES.index(one.severity)))


class _Findings:
    """Findings of one log, a method for each kind."""

    def __init__(self, log: AccessLog, source: KernelSource) -> None:
        self._log = log
        self._source = source

    def misuses(self) -> Iterator[AccessFinding]:
        """Find operations whose result no GPU promises: they are the cause of what follows."""
        for row in self._log.misuses:
            line, program = Line(*row["line"]), tuple(row["program"])
            message = f"program {program} {row['message']}"
            text = self._source.line_text(*line)
            other = Line(*row["other"])
            at: dict[str, Any] = {"program": program, "count": row["count"]}
            if other != line:
                at |= {"other_line": other, "other_source_line": self._source.line_text(*other)}
            yield AccessFinding(row["kind"], row["severity"], message, line, text, **at)

    def strays(self) -> Iterator[AccessFinding]:
        """Find accesses outside every array.

        A block that begins inside and ends outside lacks a mask. An array that is left with holes while other elements
        lie beyond its end was walked with a wrong stride.
        """
        log = self._log
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
            total = f"{row['count']:,} such accesses; " if row["count"] > 1 else ""
            program = tuple(row["program"])
            message = f"program {program} {_VERB[site.kind]} {what} ({total}{advice})"
            at: dict[str, Any] = {"program": program, "array": name, "element": element}
            yield self._finding(kind, "error", message, row["site"], count=row["count"], **at)

    def gaps(self) -> Iterator[AccessFinding]:
        """Find accesses between the elements of a strided array, to memory that belongs to something else."""
        log = self._log
        for region in {region_number(one.start) for one in log.arguments if _has_gaps(one)}:
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
                hits = [(row, places[between[places]]) for row, places in board.places(rows[log.site[rows] == site])]
                hits = [(row, places) for row, places in hits if places.size]
                if not hits:
                    continue
                row, places = hits[0]
                array = log.owners(region)[0]
                count = sum(each.size for _, each in hits) * board.unit // log.sites[site].itemsize
                program = log.at(int(log.program[row]))
                element = int(board.addresses[places[0]] - array.address) // array.itemsize
                steps = " x ".join(str(step // array.itemsize) for step in array.strides)
                away = f"{element:,} element{'s' * (element != 1)}"
                message = (
                    f"program {program} {_VERB[log.sites[site].kind]} between the rows of {array.name}, "
                    f"{away} from its first ({count:,} such accesses; its strides are {steps})"
                )
                at: dict[str, Any] = {"program": program, "array": array.name, "element": element, "count": count}
                yield self._finding("wrong_stride", "error", message, site, **at)

    def races(self) -> Iterator[AccessFinding]:
        log = self._log
        for race in races(log):
            one, two = (log.sites[log.site[row]].kind for row in (race.earlier, race.later))
            first, second = (log.at(int(log.program[row])) for row in (race.earlier, race.later))
            array, element = self._place(race.region, race.address)
            does = f"{_VERB[one]}, program {second} {_VERB[two]}"
            if one == two:
                does = f"and program {second} both {_VERB[one].rstrip('s')}"
            count = race.bytes // self._size(array)
            total = f" ({count:,} elements in all)" if count > 1 else ""
            message = f"program {first} {does} {array}[{element}], in no order{total}"
            if race.relaxed >= 0:
                number = log.sites[log.site[race.relaxed]].line.number
                message += f"; the atomic of line {number} orders nothing: leave out its sem= and scope="
            sites = int(log.site[race.earlier]), int(log.site[race.later])
            at: dict[str, Any] = {
                "program": first,
                "other_program": second,
                "array": array,
                "element": element,
                "count": count,
            }
            yield self._finding("race", "error", message, *sites, **at)

    def disputes(self) -> Iterator[AccessFinding]:
        """Find stores whose lanes write different values to one element."""
        for row in self._log.disputes:
            array, element = self._place(int(region_number(row["address"])), row["address"])
            program = tuple(row["program"])
            message = f"lanes of one store of program {program} write different values to {array}[{element}]"
            at: dict[str, Any] = {"program": program, "array": array, "element": element, "count": row["count"]}
            yield self._finding("conflicting_store", "error", message, row["site"], **at)

    def repeats(self) -> Iterator[AccessFinding]:
        log = self._log
        for one in repeats(log):
            array, element = self._place(one.region, int(log.extents[0][one.later]))
            program = log.at(int(log.program[one.later]))
            past, present = _AGAIN[one.kind]
            who = f"each of {one.programs:,} programs" if one.programs > 1 else f"program {program}"
            message = f"{who} {present} bytes of {array} that it had {past} before ({one.bytes:,} bytes in all)"
            sites = int(log.site[one.earlier]), int(log.site[one.later])
            at: dict[str, Any] = {"program": program, "other_program": program, "array": array, "element": element}
            count = one.bytes // self._size(array)
            yield self._finding(f"repeated_{one.kind}", "performance", message, *sites, **at, count=count)

    def unwritten(self) -> Iterator[AccessFinding]:
        """Find elements that no program stores to, of arrays that are stored to."""
        log = self._log
        for one in log.arguments:
            rows = log.rows(region_number(one.start), "store")
            rows = rows[(log.extents[0][rows] < one.stop) & (log.extents[1][rows] > one.start)]
            left = self._untouched(one, rows) if rows.size else rows
            if left.size:
                message = (
                    f"{left.size:,} of {math.prod(one.shape):,} elements of {one.name} are not stored to, "
                    f"{one.name}[{left[0]}] the first of them"
                )
                at: dict[str, Any] = {"array": one.name, "element": int(left[0]), "count": int(left.size)}
                yield self._finding("unwritten", "information", message, int(log.site[rows[-1]]), **at)

    def unread(self) -> Iterator[AccessFinding]:
        """Find elements that no program touches, of arrays that are loaded from."""
        log = self._log
        for one in log.arguments:
            rows = log.rows(region_number(one.start), "load", "store", "atomic")
            rows = rows[(log.extents[0][rows] < one.stop) & (log.extents[1][rows] > one.start)]
            loads = rows[log.kind[rows] == "load"]
            left = self._untouched(one, rows) if loads.size else loads
            if left.size and not (log.kind[rows] == "store").any():
                message = (
                    f"{left.size:,} of {math.prod(one.shape):,} elements of {one.name} are not read, "
                    f"{one.name}[{left[0]}] the first of them"
                )
                at: dict[str, Any] = {"array": one.name, "element": int(left[0]), "count": int(left.size)}
                yield self._finding("unread", "information", message, int(log.site[loads[-1]]), **at)

    def _holes(self, argument: Argument, region: int, kind: Any) -> bool:
        """Return True if accesses of one kind skip elements of an array and touch later ones."""
        rows = self._log.rows(region, kind)
        if not rows.size:
            return False
        last = int(self._log.extents[1][rows].max())
        untouched = _addresses(argument, argument.itemsize)[self._untouched(argument, rows)]
        return bool((untouched < last).any())

    def _untouched(self, argument: Argument, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the numbers, in the flattened array, of the elements of which no byte is touched."""
        board = Board(self._log, rows)
        marks = board.marks()
        if marks.all() and board.addresses[0] <= argument.start and argument.stop <= board.addresses[-1] + board.unit:
            return np.empty(0, np.int64)
        at = board.find(_addresses(argument, argument.itemsize))
        return np.flatnonzero(~(marks[at] & (at >= 0)))

    def _place(self, region: int, address: int) -> tuple[str, int]:
        """Return the array that an address belongs to, and the number of the element."""
        owners = self._log.owners(region)
        inside = [one for one in owners if one.start <= address < one.stop] or list(owners)
        return inside[0].name, (address - inside[0].address) // inside[0].itemsize

    def _size(self, array: str) -> int:
        return next(one.itemsize for one in self._log.arguments if one.name == array)

    def _finding(
        self, kind: str, severity: Severity, message: str, site: int, other: int = -1, **rest: Any
    ) -> AccessFinding:
        line = self._log.sites[site].line
        second = self._log.sites[other].line if other >= 0 else None
        rest |= {"other_line": second, "other_source_line": self._source.line_text(*second) if second else ""}
        return AccessFinding(kind, severity, message, line, self._source.line_text(*line), **rest)


def _has_gaps(argument: Argument) -> bool:
    if any(step == 0 and length > 1 for length, step in zip(argument.shape, argument.strides, strict=True)):
        return False  # a view that says less than the elements that belong to it
    return math.prod(argument.shape) * argument.itemsize < argument.stop - argument.start


def _addresses(argument: Argument, unit: int) -> NDArray[np.int64]:
    """Return the address of every unit of every element, in the order in which numpy flattens the array."""
    at = np.array([argument.address], np.int64)
    for length, step in zip(argument.shape, argument.strides, strict=True):
        at = (at[:, None] + np.arange(length) * step).reshape(-1)
    return at if unit >= argument.itemsize else (at[:, None] + np.arange(0, argument.itemsize, unit)).reshape(-1)
