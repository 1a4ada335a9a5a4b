"""Regions that are cut out of a student's notebook: ``### BEGIN SOLUTION`` … and ``### BEGIN HIDDEN TESTS`` …"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

SOLUTION = "SOLUTION"
HIDDEN = "HIDDEN TESTS"
_MARKER = re.compile(r"(BEGIN|END) (SOLUTION|HIDDEN TESTS)")


@dataclass(frozen=True)
class MarkedRegion:
    """Lines ``first`` to ``last`` (from 1, both inside the markers, ``last < first`` when empty) of one cell."""

    what: str
    first: int
    last: int

    def lines(self, source: str) -> list[str]:
        return source.split("\n")[self.first - 1 : self.last]


@dataclass(frozen=True)
class Unbalanced:
    """A marker without its partner."""

    line: int
    problem: str


def regions(source: str) -> tuple[Sequence[MarkedRegion], Sequence[Unbalanced]]:
    """Return every region of a cell, and every marker without a partner; nbgrader itself lets a lone END pass."""
    found: list[MarkedRegion] = []
    wrong: list[Unbalanced] = []
    opened: tuple[str, int] | None = None
    for number, line in enumerate(source.split("\n"), start=1):
        match = _MARKER.search(line)
        if match is None:
            continue
        edge, what = match.groups()
        if edge == "BEGIN":
            if opened:
                above = f"the {opened[0]} that begins {number - opened[1]} lines above"
                wrong.append(Unbalanced(number, f"BEGIN {what} inside {above}"))
            opened = (what, number)
        elif opened is None or opened[0] != what:
            wrong.append(Unbalanced(number, f"END {what} without its BEGIN"))
        else:
            found.append(MarkedRegion(what, opened[1] + 1, number - 1))
            opened = None
    if opened:
        wrong.append(Unbalanced(opened[1], f"BEGIN {opened[0]} without its END"))
    return found, wrong


def cut_text(source: str, what: str) -> list[tuple[int, str]]:
    """Return (line number, text) for every line in a cell's regions of kind ``what``."""
    lines = source.split("\n")
    return [
        (number, lines[number - 1])
        for region in regions(source)[0]
        if region.what == what
        for number in range(region.first, region.last + 1)
    ]


def without(source: str, *kinds: str) -> str:
    """Return a cell with blank lines for the regions of these kinds, so that line numbers stay."""
    cut = {number for what in kinds for number, _ in cut_text(source, what)}
    return "\n".join("" if n in cut else line for n, line in enumerate(source.split("\n"), start=1))
