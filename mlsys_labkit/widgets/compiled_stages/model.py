"""Lines of a compiler's stage by the source line they come from; the twin of ``model.js``.

A stage is a list of runs ``[sources, texts, hidden]``: consecutive lines that come from the same source lines, given by
their index in the shown code, and how many lines more the run has, which are not shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

SOURCES, TEXTS, HIDDEN = range(3)

Run = Sequence[Any]


def lit(runs: Sequence[Run], source: int) -> list[int]:
    """Return the rows of the stage that come from line ``source``; hidden lines are one row at the end of a run.

    Example:
        >>> lit([[[0], ["a", "b"], 5], [[], ["c"], 0], [[0, 1], ["d"], 0]], 0)
        [0, 1, 2, 4]
    """
    rows: list[int] = []
    at = 0
    for run in runs:
        size = len(run[TEXTS]) + (run[HIDDEN] > 0)
        if source in run[SOURCES]:
            rows += range(at, at + size)
        at += size
    return rows


def amount(runs: Sequence[Run], source: int) -> int:
    """Return the lines of the stage that come from source line ``source``, hidden ones too."""
    return sum(len(run[TEXTS]) + run[HIDDEN] for run in runs if source in run[SOURCES])


def origin(runs: Sequence[Run], row: int) -> int | None:
    """Return the first source line that a row comes from; None for a row that comes from none."""
    for run in runs:
        size = len(run[TEXTS]) + (run[HIDDEN] > 0)
        if row < size:
            return run[SOURCES][0] if run[SOURCES] else None
        row -= size
    return None


def folded(runs: Sequence[Run], budget: int) -> list[list[Any]]:
    """Shorten the runs so that the stage's text stays within ``budget`` characters; each run keeps a line.

    Example:
        >>> folded([[[0], ["add", "add", "add", "mul"], 0], [[1], ["store"], 0]], 12)
        [[[0], ['add', 'add'], 2], [[1], ['store'], 0]]
    """
    longest = max((len(run[TEXTS]) for run in runs), default=1)
    keep = next((n for n in range(longest, 1, -1) if _size(runs, n) <= budget), 1)
    return [[list(sources), list(texts[:keep]), hidden + max(0, len(texts) - keep)] for sources, texts, hidden in runs]


def _size(runs: Sequence[Run], keep: int) -> int:
    return sum(len(text) for run in runs for text in run[TEXTS][:keep])
