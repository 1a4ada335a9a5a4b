"""Work: what a piece of code asks of the machine, stated by formula or counted while it runs."""

from __future__ import annotations

from mlsys_labkit.work.count import count_work, counting_work
from mlsys_labkit.work.network_link import Link
from mlsys_labkit.work.record import Work, WorkError
from mlsys_labkit.work.tally import UncountedWarning

__all__ = ["Link", "UncountedWarning", "Work", "WorkError", "count_work", "counting_work"]
