"""Live bytes over a run of allocations and frees; the twin of ``model.js``.

An event is ``(tensor, bytes, category, line)``: positive bytes allocate, negative bytes free; ``category`` and ``line``
index into lists of names.
"""

from __future__ import annotations

from collections.abc import Sequence

Event = Sequence[int]


def live(events: Sequence[Event], categories: int) -> list[list[int]]:
    """Return the live bytes of each category after each event.

    Example:
        >>> live([(0, 8, 0, 0), (1, 4, 1, 0), (0, -8, 0, 0)], categories=2)
        [[8, 0], [8, 4], [0, 4]]
    """
    now, rows = [0] * categories, []
    for _, size, category, _ in events:
        now[category] += size
        rows.append(list(now))
    return rows


def peak(events: Sequence[Event]) -> tuple[int, int]:
    """Return ``(event, bytes)`` of the first moment with the most live bytes; ``(0, 0)`` without events."""
    total, best = 0, (0, 0)
    for at, (_, size, _, _) in enumerate(events):
        total += size
        if total > best[1]:
            best = (at, total)
    return best


def alive(events: Sequence[Event], at: int) -> list[Event]:
    """Return the allocations not yet freed after event ``at``, largest first, then oldest first."""
    held: dict[int, Event] = {}
    for event in events[: at + 1]:
        held.pop(event[0], None)
        if event[1] >= 0:
            held[event[0]] = event
    return sorted(held.values(), key=lambda event: -event[1])
