"""Reuse distances of cache lines, which give the misses of a cache of any size."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from mlsys_labkit.triton_trace.count.log import AccessLog

LINE_BYTES = 128  # a line of an NVIDIA L2


@dataclass(frozen=True, eq=False)
class Reuse:
    """Reuse distances of a launch's cache lines.

    Attributes:
        cold: first accesses to a line. asked: all accesses to lines, by loads, stores and atomics.
        distances: int64 [asked - cold], ascending: for each later access, the number of other lines accessed since the
            previous access to the same line.

    Example:
        >>> Reuse(cold=4, asked=6, distances=np.array([1, 3])).missed_bytes(2 * LINE_BYTES)
        640

    Reference: R. Mattson et al., Evaluation techniques for storage hierarchies, IBM Systems Journal 9(2), 1970.
    """

    cold: int
    asked: int
    distances: NDArray[np.int64]

    def missed_bytes(self, capacity_bytes: float) -> int:
        """Return the bytes that a fully associative LRU cache of that size fetches."""
        lines = int(capacity_bytes) // LINE_BYTES
        return LINE_BYTES * (self.cold + int(self.distances.size - np.searchsorted(self.distances, lines)))


@lru_cache(maxsize=8)
def reuse(log: AccessLog, programs_at_once: int = 1) -> Reuse:
    """Compute reuse distances in the order of the log, ``programs_at_once`` taking turns, one access each."""
    lines = _lines(log, _turns(log, programs_at_once))
    previous = _previous(lines)
    warm = np.flatnonzero(previous >= 0)
    # Between two times of a line, those lines are distinct that do not come back within; each that does is an access j
    # before i whose own predecessor lies after that of i.
    distances = warm - previous[warm] - 1 - _greater_before(previous[warm])
    return Reuse(int(lines.size - warm.size), int(lines.size), np.sort(distances))


def _turns(log: AccessLog, programs_at_once: int) -> NDArray[np.int64]:
    """Return the rows of the log, interleaved."""
    rows = np.flatnonzero(log.shape >= 0)
    if programs_at_once == 1 or not rows.size:
        return rows
    programs, started, place = np.unique(log.program[rows], return_index=True, return_inverse=True)
    turn = np.empty(programs.size, np.int64)
    turn[np.argsort(started)] = np.arange(programs.size)
    turn = turn[place]
    by_program = np.argsort(turn, kind="stable")
    within = np.empty(rows.size, np.int64)
    lengths = np.bincount(turn)
    within[by_program] = np.arange(rows.size) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return rows[np.lexsort((turn, within, turn // programs_at_once))]


def _lines(log: AccessLog, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the numbers of the lines accessed, in order; an access counts each of its lines once."""
    known: dict[tuple[int, int], NDArray[np.int64]] = {}
    parts = []
    for shape, first in zip(log.shape[rows].tolist(), log.first[rows].tolist(), strict=True):
        line, within = divmod(first, LINE_BYTES)
        if (shape, within) not in known:
            # Elements are aligned to their size, so that none lies across two lines.
            known[shape, within] = np.unique((log.shapes[shape].offsets + within) // LINE_BYTES)
        parts.append(known[shape, within] + line)
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def _previous(lines: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the index of the previous access to the same line; -1 for the first."""
    order = np.argsort(lines, kind="stable")
    previous = np.full(lines.size, -1, np.int64)
    same = lines[order[1:]] == lines[order[:-1]]
    previous[order[1:][same]] = order[:-1][same]
    return previous


def _greater_before(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Count, for each of distinct ``values``, the greater ones before it: one pass over each bit of their ranks.

    Before the pass of a bit the ranks are grouped by the bits above it, each group in the order of time and at the
    place of its least rank, because every rank occurs once. In a group, those with the bit set are the greater ones.
    """
    count = np.zeros(values.size, np.int64)
    ranks = np.empty(values.size, np.int64)
    ranks[np.argsort(values)] = np.arange(values.size)
    index = place = np.arange(values.size)
    for bit in reversed(range(int(values.size).bit_length())):
        high = (ranks >> bit) & 1
        ones = np.cumsum(high) - high
        start = (ranks >> (bit + 1)) << (bit + 1)
        ones -= ones[start]
        count[index] += np.where(high, 0, ones)
        to = start + np.where(high, (1 << bit) + ones, place - start - ones)
        ranks, index = _moved(ranks, to), _moved(index, to)
    return count


def _moved(values: NDArray[np.int64], to: NDArray[np.int64]) -> NDArray[np.int64]:
    result = np.empty_like(values)
    result[to] = values
    return result
