"""Differences between two gradings: points before and after by student and task, on screen and in files."""

from __future__ import annotations

import csv
import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from mlsys_grading.files import write_atomic
from mlsys_grading.gradebook.registered import RegisteredLab
from mlsys_grading.gradebook.sheet import guarded

FOLDER = "regraded"
_COLUMNS = ("student", "task", "before", "after", "score_before", "score_after")
_MOST_LINES = 20

Points = Mapping[str, float | None]


@dataclass(frozen=True)
class MarkChange:
    """One submission that was graded before.

    Attributes:
        before, after: the machine's points by task, for the tasks where they differ.
        score_before, score_after: what counts: people's marks before the machine's, less the late penalty.
    """

    student: str
    before: Points
    after: Points
    score_before: float
    score_after: float

    def __str__(self) -> str:
        """Write one line for the screen."""
        tasks = [
            f"{task} {shown_points(self.before.get(task))} -> {shown_points(now)}" for task, now in self.after.items()
        ]
        return f"{self.student}  {self.score_before:g} -> {self.score_after:g}  {', '.join(tasks)}".rstrip()


def tasks_of(lab: RegisteredLab) -> dict[str, str]:
    """Return marked cell -> its task: the solution that it follows; a cell that a person marks is its own.

    Example:
        >>> from mlsys_grading.gradebook.registered import RegisteredCell
        >>> kinds = {"f": "solution", "f_test": "test"}
        >>> cells = [RegisteredCell(name, kind, "code", "", {}) for name, kind in kinds.items()]
        >>> tasks_of(RegisteredLab("lab00_your_machine", tuple(cells)))
        {'f_test': 'f'}
    """
    tasks, task = {}, ""
    for cell in lab.cells:
        if cell.kind in ("solution", "manual", "task"):
            task = cell.name
        if cell.kind != "solution":
            tasks[cell.name] = task or cell.name
    return tasks


def changed_tasks(tasks: Mapping[str, str], before: Points, after: Points) -> tuple[Points, Points]:
    """Compare the points of two gradings by task. A cell that ``tasks`` does not name is its own."""
    sums: tuple[dict[str, float | None], dict[str, float | None]] = {}, {}
    changed = {}
    for cell in dict.fromkeys([*before, *after]):
        task = tasks.get(cell, cell)
        for side, points in zip(sums, (before, after), strict=True):
            if (found := points.get(cell)) is not None:
                side[task] = (side.get(task) or 0.0) + found
        if before.get(cell) != after.get(cell):
            changed[task] = True
    first, second = ({task: side.get(task) for task in changed} for side in sums)
    return first, second


class Differences:
    """Differences of one run over one lab. Each is written to the file at once, because a run may be killed.

    Args:
        course: the files are ``regraded/LAB-TIME.csv``, and at the end ``.json``, in it.
    """

    def __init__(self, course: Path, lab: str) -> None:
        self._lab = lab
        self._at = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        self._path = course / FOLDER / f"{lab}-{self._at}.csv"
        self._changes: list[MarkChange] = []

    def add(self, change: MarkChange) -> None:
        """Append one change to the CSV file."""
        self._path.parent.mkdir(exist_ok=True)
        with open(self._path, "a", encoding="utf-8", newline="") as file:
            lines = csv.writer(file, lineterminator="\n")
            if not self._changes:
                lines.writerow(_COLUMNS)
            for task in change.after or {"": None}:
                points = (change.before.get(task), change.after.get(task))
                lines.writerow((guarded(change.student), task, *points, change.score_before, change.score_after))
        self._changes.append(change)

    def close(self, graded: int) -> Iterator[str]:
        """Write the JSON file, and return the lines for the screen; ``graded`` is the number graded again."""
        if not self._changes:
            return
        json_path = self._path.with_suffix(".json")
        students = [
            {
                "student": change.student,
                "score": [change.score_before, change.score_after],
                "tasks": {task: [change.before.get(task), points] for task, points in change.after.items()},
            }
            for change in self._changes
        ]
        plain = {"lab": self._lab, "at": self._at, "graded": graded, "changed": students}
        write_atomic(json_path, json.dumps(plain, indent=1) + "\n")
        up = sum(change.score_after > change.score_before for change in self._changes)
        down = sum(change.score_after < change.score_before for change in self._changes)
        count = len(self._changes)
        yield f"{self._lab}: marks of {count} submission{'s' * (count != 1)} changed: {up} up, {down} down"
        yield from (f"  {change}" for change in self._changes[:_MOST_LINES])
        if count > _MOST_LINES:
            yield f"  and {count - _MOST_LINES} more"
        yield from self._by_task()
        yield f"  see {self._path.parent.name}/{self._path.name} and {json_path.name}"

    def _by_task(self) -> Iterator[str]:
        students: Counter[str] = Counter()
        points: Counter[str] = Counter()
        for change in self._changes:
            for task, after in change.after.items():
                students[task] += 1
                points[task] += (after or 0.0) - (change.before.get(task) or 0.0)  # type: ignore[assignment]
        for task, count in students.most_common(_MOST_LINES):
            yield f"  {task}: {points[task]:+g} points, {count} submission{'s' * (count != 1)}"


def shown_points(points: float | None) -> str:
    """Format points, or "none"."""
    return "none" if points is None else f"{points:g}"
