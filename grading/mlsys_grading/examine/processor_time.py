"""Processor time that a tree of processes waited for and was given, as Linux's scheduler counts it."""

from __future__ import annotations

from pathlib import Path

from mlsys_grading.processes import used_seconds
from mlsys_grading.sandbox.watch import tree

__all__ = ["standing", "waited_seconds"]


def standing(root: int) -> tuple[float, float]:
    """Return the longest wait of one process of a tree for a processor, and the time that all of them used one."""
    pids = tree(root)
    return max(map(waited_seconds, pids), default=0.0), sum(map(used_seconds, pids))


def waited_seconds(pid: int) -> float:
    """Return how long a process was ready and did not run; 0 when it is gone, or the kernel does not count."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0
