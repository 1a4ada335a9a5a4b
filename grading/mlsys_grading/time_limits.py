"""Seconds that a call, a cell and a submission may take: the defaults of ``labkit grade`` and ``labkit prove``.

A lab states others under ``mlsys_grading: limits:`` in its notebook's metadata, and ``labkit grade --limit NAME=VALUE``
goes before that (``grade.bounds``). ``labkit prove --cell-seconds`` sets that of a proof.
"""

from __future__ import annotations

from dataclasses import dataclass

PROVED_CELL_SECONDS = 60.0
"""The most that a cell may take while ``labkit prove`` runs it."""


@dataclass(frozen=True)
class TimeLimits:
    """The most seconds that one call of student code, one cell, and each process of one submission may take."""

    call_seconds: float = 30.0
    cell_seconds: float = 90.0
    wall_seconds: float = 900.0
