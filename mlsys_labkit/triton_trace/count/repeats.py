"""Repeated accesses: bytes that one program loads twice, or stores twice without a load between."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mlsys_labkit.triton_trace.count.allocation_units import Board
from mlsys_labkit.triton_trace.count.counts import alike
from mlsys_labkit.triton_trace.count.log import AccessLog
from mlsys_labkit.triton_trace.recorder import Kind


@dataclass
class Repeat:
    """Bytes that programs access again, by two lines.

    Attributes:
        earlier, later: rows of the log, in one program. bytes: over ``programs`` programs.
    """

    kind: Kind
    region: int
    earlier: int
    later: int
    bytes: int = 0
    programs: int = 0


def repeats(log: AccessLog) -> list[Repeat]:
    """Return repeated loads and stores of the same bytes by one program, one entry for each pair of lines.

    Repetition within one access does not count, nor do loads of bytes that the program also writes.
    """
    found: dict[tuple[str, int, int, int], Repeat] = {}
    for rows, times in alike(log):
        for region in np.unique(log.region[rows]).tolist():
            members = rows[log.region[rows] == region]
            if members.size > 1:
                _look(log, region, members, times, found)
    return list(found.values())


def _look(
    log: AccessLog, region: int, rows: NDArray[np.int64], times: int, found: dict[tuple[str, int, int, int], Repeat]
) -> None:
    """Add the repetitions of one program in one allocation; ``times`` programs do the same."""
    kinds = log.kind[rows]
    board = Board(log, rows)
    written = board.marks(rows[kinds != "load"]) if (kinds != "load").any() else None
    for kind in ("load", "store"):
        chosen = rows[kinds == kind]
        if chosen.size < 2:
            continue
        owner = np.full(board.size, -1, np.int64)
        here: dict[tuple[int, int], list[int]] = {}
        for row, places in board.places(chosen):
            before = owner[places]
            again = before >= 0
            owner[places[~again]] = row
            if kind == "load" and written is not None:
                again &= ~written[places]
            if again.any():
                earlier = int(before[again][0])
                pair = int(log.site[earlier]), int(log.site[row])
                here.setdefault(pair, [earlier, row, 0])[2] += board.unit * int(again.sum())
        for (one, two), (earlier, row, amount) in here.items():
            repeat = found.setdefault((kind, region, one, two), Repeat(kind, region, earlier, row))
            repeat.bytes += times * amount
            repeat.programs += times
