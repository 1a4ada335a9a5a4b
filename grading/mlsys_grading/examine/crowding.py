"""Processor time that a tree of processes takes, also in processes that nobody saw, and that others take from it.

The kernel forgets the time of a process whose parent ignores its end. A tree of such processes seems to wait for a
processor and to use none, as if others had the machine. Its processes are there while they run, however: a look now and
then at how many are runnable, of this tree and of the whole machine, tells how the processors were divided.

Reference: Linux, Documentation/filesystems/proc.rst (loadavg, task/TID/stat); sched(7), "The nice value".
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from mlsys_grading.sandbox.watch import tree

_FIRST_SECONDS, _LOOK_SECONDS = 1.0, 0.1  # most submissions are nearly over by the first look
_WEIGHT = 335 / 1024  # of nice 5, which sandboxes have, beside nice 0


class Crowding(threading.Thread):
    """A thread that looks at the processors while its ``with`` block lasts.

    Args:
        roots: returns the first processes of the trees.
        cores: how many processors they may use.

    Attributes:
        own_seconds: processor time that the trees have taken, by their share of what was runnable.
        denied_seconds: time in which one process of theirs would have run, had nobody else been there.
    """

    def __init__(self, roots: Callable[[], Sequence[int]], cores: int) -> None:
        super().__init__(daemon=True, name="labkit-crowding")
        self.own_seconds = self.denied_seconds = 0.0
        self._roots, self._cores = roots, cores
        self._over = threading.Event()

    def run(self) -> None:
        before, seconds = time.monotonic(), _FIRST_SECONDS
        while not self._over.wait(seconds):
            seconds = _LOOK_SECONDS
            own = runnable(self._roots())
            others = max(0, all_runnable() - own - 1)  # this thread runs
            now = time.monotonic()
            self.own_seconds += (now - before) * share(own, others, self._cores)
            self.denied_seconds += (now - before) * (1 - share(1, others, self._cores))
            before = now

    def __enter__(self) -> Crowding:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()


def share(own: int, others: int, cores: int) -> float:
    """Return how many processors ``own`` runnable threads have beside ``others`` of a higher priority.

    Example:
        >>> share(1, 0, 2), share(6, 0, 2), share(0, 9, 2), round(share(1, 5, 1), 3)
        (1.0, 2.0, 0.0, 0.061)
    """
    if own + others <= cores:
        return float(own)
    return min(own, cores * own * _WEIGHT / (own * _WEIGHT + others))


def runnable(roots: Sequence[int]) -> int:
    """Count the threads of these trees that run or wait for a processor."""
    found = 0
    for pid in (pid for root in roots for pid in tree(root)):
        with suppress(OSError):  # it has ended
            for thread in os.listdir(f"/proc/{pid}/task"):
                text = Path(f"/proc/{pid}/task/{thread}/stat").read_text()
                found += text.rpartition(")")[2].split()[0] == "R"
    return found


def all_runnable() -> int:
    """Count the threads of the whole machine that run or wait for a processor; 0 where that cannot be read."""
    with suppress(OSError, IndexError, ValueError):
        return int(Path("/proc/loadavg").read_text().split()[3].partition("/")[0])
    return 0
