"""Requests served in time under adjustable bounds; the twin of ``model.js``.

A row is ``(name, arrival, first, last, tokens, reason)``: seconds of the arrival, the first and the last token (None
where there was none), how many tokens it got, and how it ended ("stop", "length", "abort", or "" for not yet).
Reference: Zhong et al., "DistServe", OSDI 2024, sec. 2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

Row = Sequence[Any]
ROUNDING = 1e-9  # a wait of exactly the bound is a difference of two clock readings, and a bit off


def ttft(row: Row) -> float | None:
    """Return the seconds from a request's arrival to its first token."""
    return None if row[2] is None else float(row[2] - row[1])


def tpot(row: Row) -> float | None:
    """Return the seconds per token after the first; None below two tokens."""
    return None if row[4] < 2 else float((row[3] - row[2]) / (row[4] - 1))


def missed(row: Row, most_ttft: float, most_tpot: float) -> str:
    """Return the bound that a request missed: "", "TTFT", "TPOT" or "both"; "not served" without a proper end.

    Example:
        >>> missed(("a", 0.0, 0.4, 1.4, 11, "length"), most_ttft=0.3, most_tpot=0.1)
        'TTFT'
    """
    first = ttft(row)
    if first is None or row[5] not in ("stop", "length"):
        return "not served"
    late = first > most_ttft * (1 + ROUNDING)
    slow = (tpot(row) or 0.0) > most_tpot * (1 + ROUNDING)
    return "both" if late and slow else "TTFT" if late else "TPOT" if slow else ""


def goodput(rows: Sequence[Row], most_ttft: float, most_tpot: float, seconds: float) -> list[float]:
    """Return [requests that met both bounds, requests per second that did].

    Example:
        >>> goodput([("a", 0.0, 0.4, 1.4, 11, "length")], most_ttft=0.5, most_tpot=0.1, seconds=2.0)
        [1, 0.5]
    """
    met = sum(not missed(row, most_ttft, most_tpot) for row in rows)
    return [met, met / seconds if seconds else 0]


def span(rows: Sequence[Row], first: int, count: int, end: float) -> list[float]:
    """Return [start, end] of ``count`` rows from ``first`` on; a row that did not end lasts until ``end``."""
    shown = rows[first : first + count]
    last = [end if row[3] is None or not row[5] else row[3] for row in shown]
    start = min((row[1] for row in shown), default=0.0)
    return [start, max([*last, start])]


def ticks(low: float, high: float, most: int) -> list[float]:
    """Return at most ``most`` round numbers, evenly spaced, within [low, high].

    Example:
        >>> ticks(0.3, 2.2, most=5)
        [0.5, 1.0, 1.5, 2.0]
    """
    if high <= low:
        return []
    power = math.floor(math.log10((high - low) / most))
    sizes = (size * 10.0**power if power >= 0 else size / 10.0**-power for size in (1, 2, 5, 10, 20))
    step = next(size for size in sizes if (high - low) / size <= most)
    return [count * step for count in range(math.ceil(low / step), math.floor(high / step) + 1)][:most]
