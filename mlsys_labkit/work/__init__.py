"""Work: what a piece of code asks of the machine, stated by formula or counted while it runs."""

from __future__ import annotations

from mlsys_labkit.work.record import Work, WorkError

__all__ = ["Work", "WorkError"]
