"""The text of a proof in a terminal: one row per task."""

from __future__ import annotations

import shutil
import sys
import textwrap
import time
from collections.abc import Iterator, Sequence
from typing import TextIO

from mlsys_grading.prove.verdict import LabProof, TaskProof


def rows(proof: LabProof) -> Iterator[str]:
    """Yield a title, one row per task, and a last line with the sums."""
    width = max([len(task.name) for task in proof.tasks], default=4)
    yield f"{proof.name}"
    yield f"  {'task':{width}}  points  solution  unsolved  wrong answers caught"
    for task in proof.tasks:
        mark = " " if _fine(task) else "✗"
        head = f"{mark} {task.name:{width}}  {task.points:6g}  {task.solution:8g}  {task.unsolved:8g}  "
        caught = f"{task.caught}/{len(task.wrong)} "
        names = ", ".join(wrong.name if wrong.caught else f"{wrong.name} ✗" for wrong in task.wrong)
        first, *rest = textwrap.wrap(caught + names, max(30, _columns() - len(head))) or [""]
        yield head + first
        yield from (" " * len(head) + line for line in rest)
    points = sum(task.points for task in proof.tasks)
    wrong = sum(len(task.wrong) for task in proof.tasks)
    verdict = "proved" if proof.proved else f"{len(proof.problems)} to mend"
    seen = sum(task.seen for task in proof.tasks)
    sizes = f"{len(proof.tasks)} tasks, {points:g} points, {wrong} wrong answers, {seen} caught by a visible check"
    yield f"  {verdict}: {sizes}; cells took {proof.seconds:.1f} s"


def details(proofs: Sequence[LabProof]) -> Iterator[str]:
    """Yield one line per wrong answer, with the check that caught it."""
    for proof in proofs:
        for task in proof.tasks:
            for wrong in task.wrong:
                sight = "" if wrong.seen else " (unseen)"
                yield f"{task.name} / {wrong.name}: keeps {wrong.earned:g}; {wrong.caught_by or 'nothing'}{sight}"


def _fine(task: TaskProof) -> bool:
    return task.solution == task.points and task.unsolved == 0 and task.caught == len(task.wrong)


class ProgressBar:
    """A bar with the time that is left; nothing where the stream is no terminal."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._live = self._stream.isatty()
        self._started = time.monotonic()

    def __call__(self, done: int, total: int, job: str) -> None:
        if not self._live:
            return
        elapsed = time.monotonic() - self._started
        left = f"about {elapsed * (total - done) / done:.0f} s left" if done else "starting"
        filled = 24 * done // max(total, 1)
        line = f"{'━' * filled}{'╌' * (24 - filled)} {done}/{total} · {elapsed:.0f} s · {left} · {job}"
        self._stream.write(f"\r\x1b[K{line[: _columns() - 1]}")
        self._stream.flush()

    def close(self) -> None:
        if self._live:
            self._stream.write("\r\x1b[K")
            self._stream.flush()


def _columns() -> int:
    return shutil.get_terminal_size((140, 24)).columns
