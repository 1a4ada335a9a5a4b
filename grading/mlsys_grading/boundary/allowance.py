"""Time limits on a shared machine: a process is not charged for the time that it waits for a processor.

A process that sleeps or loops uses up its time. One that was ready to run but got no processor gets the time that it
waited in addition, up to MOST times its allowance in all, or twice that if it has had half of its processor time by
then; beyond that the machine is at fault. A process that has used its allowance of processor time was not starved, or
was starved by processes that it started itself. The grader
also estimates what such processes use that no record has (``examine.crowding``): the machine is at fault only where
something else was there to take it.

Reference: Linux, Documentation/scheduler/sched-stats.rst (/proc/PID/schedstat).
"""

from __future__ import annotations

import time
from collections.abc import Callable

from mlsys_grading.boundary.errors import StarvedError

MOST = 4
_LEAST = 0.01
Standing = Callable[[], tuple[float, ...]]
"""Tells how many seconds a process has waited for a processor so far, and how many it has had one: by one or more ways
to know that, of which the largest increase counts, since each of them may miss some."""


class Allowance:
    """A time limit that starts when the object is made.

    Args:
        seconds: the time limit, without the time that is given back.
        standing: a function that reads the process's waiting time; None where it cannot be read.

    Attributes:
        until: the end of the limit, by ``time.monotonic()``.

    Example:
        >>> waited = iter([5.0, 5.6])
        >>> allowance = Allowance(1.0, lambda: (next(waited), 0.0))
        >>> allowance.begin()
        >>> allowance.extend()  # by the 0.6 s
        True
    """

    def __init__(self, seconds: float, standing: Standing | None = None) -> None:
        self.until = time.monotonic() + seconds
        self._seconds, self._standing = seconds, standing
        self._begun: tuple[float, ...] | None = None
        self._granted = 0.0

    def begin(self, standing: tuple[float, ...] | None = None) -> None:
        """Read the tree's waiting time now, or take a reading; only time that it waits after that is given back."""
        if self._standing and self._begun is None:
            self._begun = standing or self._standing()

    def extend(self) -> bool:
        """Return True if time was added. Raises StarvedError for a process that was given almost no processor time."""
        if not self._standing or self._begun is None:
            return False
        waited, *ways = (now - before for now, before in zip(self._standing(), self._begun, strict=True))
        used = max(ways)
        if used >= self._seconds:
            return False
        times = 2 * MOST if used >= self._seconds / 2 else MOST  # an endless loop should be known as one
        most = (times - 1) * self._seconds
        more = min(waited - self._granted, most - self._granted, self._seconds)
        if more > _LEAST * self._seconds:
            self._granted += more
            self.until = time.monotonic() + more
            return True
        if waited >= most:
            raise StarvedError(
                f"the machine is too busy: in {times} times the {self._seconds:g} s that it may take, student code had "
                f"a processor for {max(used, 0.0):.2g} s; grade fewer at a time (--jobs)"
            )
        return False
