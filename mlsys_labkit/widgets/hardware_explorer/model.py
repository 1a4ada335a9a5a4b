"""Trends through machines over the years, and the roof of one of them; the twin of ``model.js``.

Reference: Moore, "Cramming more components onto integrated circuits", 1965, for doubling times; Williams, Waterman,
Patterson, "Roofline", 2009.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log2


def trend(x: Sequence[float], y: Sequence[float], is_year: bool) -> list[float] | None:
    """Return the slope and height at the mean of x of the least-squares line through log2(y); None without two places.

    x is taken as it is for years, and as log2(x) otherwise: there the slope is the power by which y goes with x.
    Returns [slope, mean of x as taken, mean of log2(y)].

    Example:
        >>> trend([2016, 2018, 2020], [1.0, 2.0, 4.0], is_year=True)
        [0.5, 2018.0, 1.0]
        >>> trend([1, 2, 4], [3, 12, 48], is_year=False)[0]
        2.0
    """
    places = [float(v) if is_year else log2(v) for v in x]
    heights = [log2(v) for v in y]
    if len(places) < 2 or max(places) == min(places):
        return None
    middle, level = sum(places) / len(places), sum(heights) / len(heights)
    spread = sum((v - middle) ** 2 for v in places)
    slope = sum((v - middle) * (u - level) for v, u in zip(places, heights, strict=True)) / spread
    return [slope, middle, level]


def doubling(slope: float) -> float | None:
    """Return the years in which something doubles (or halves, if negative) whose trend over years has this slope.

    Example:
        >>> doubling(0.5)
        2.0
    """
    return 1 / slope if abs(slope) > 1e-3 else None


def roof(peak: float, bandwidth: float, intensity: float) -> float:
    """Return the attainable FLOP/s at an intensity in FLOP/B.

    Example:
        >>> roof(1e12, 1e11, 4)
        400000000000.0
    """
    return min(peak, bandwidth * intensity)
