"""Counts of a profile by source line; the twin of ``model.js``.

A count is ``[line, space, op, bytes_per_lane, requests, lanes, sectors, wavefronts, ideal_sectors, ideal_wavefronts,
worst]``; a step is ``[line, lane_steps]``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

LINE, SPACE, OP, SIZE, REQUESTS, LANES, SECTORS, WAVEFRONTS, IDEAL_SECTORS, IDEAL_WAVEFRONTS, WORST = range(11)
PER_REQUEST = {"sectors": ("global", SECTORS, IDEAL_SECTORS), "wavefronts": ("shared", WAVEFRONTS, IDEAL_WAVEFRONTS)}

Count = Sequence[Any]


def heat(counts: Sequence[Count], steps: Sequence[list[int]], metric: str) -> list[list[float]]:
    """Return ``[line, value, floor, times]`` of each line that has a value, by line.

    ``floor`` is what no access could do without; value and floor count ``times`` over.

    ``metric`` is "sectors" or "wavefronts" (a request), "requests", or "steps" (lane-steps). The last two have no floor
    of their own: it equals the value.

    Example:
        >>> heat([[7, "global", "load", 4, 10, 320, 320, 0, 40, 0, 32]], [], "sectors")
        [[7, 32.0, 4.0, 10]]
    """
    if metric == "steps":
        return [[line, value, value, 1] for line, value in sorted(steps)]
    space, top, low = PER_REQUEST.get(metric, (None, REQUESTS, REQUESTS))
    sums: dict[int, list[int]] = {}
    for count in counts:
        if space in (None, count[SPACE]) and count[REQUESTS]:
            total = sums.setdefault(count[LINE], [0, 0, 0])
            for slot, field in enumerate((REQUESTS, top, low)):
                total[slot] += count[field]
    return [
        [line, value / times, floor / times, times]
        for line, (requests, value, floor) in sorted(sums.items())
        for times in [requests if space else 1]
    ]


def hottest(rows: Sequence[Sequence[float]]) -> int | None:
    """Return the line with most above its floor in all; among equals the one with most in all, then the first."""
    return int(max(rows, key=lambda row: (_surplus(row), row[1] * row[3], -row[0]))[0]) if rows else None


def most_excess(counts: Sequence[Count], metric: str) -> float:
    """Return the excess of the worst line over its floor, summed over its accesses."""
    return max(map(_surplus, heat(counts, [], metric)), default=-1.0)


def excess(count: Count) -> float:
    """Return the traffic of an access over the least possible: sectors in global memory, wavefronts in shared."""
    _, top, low = PER_REQUEST["sectors" if count[SPACE] == "global" else "wavefronts"]
    return count[top] / count[low] if count[low] else 1.0


def _surplus(row: Sequence[float]) -> float:
    _, value, floor, times = row
    return (value - floor) * times
