"""The progress of one lab: its tasks and their states, points and time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from mlsys_labkit._frontends.progress import news, notebook
from mlsys_labkit._frontends.progress.catalogue import LabEntry
from mlsys_labkit._frontends.progress.notebook_record import (
    NOT_STARTED,
    PASSES,
    PAUSE_SECONDS,
    RUN_AGAIN,
    TRIED,
    NotebookRecord,
    TaskStanding,
)
from mlsys_labkit.coach.notes import all_notes
from mlsys_labkit.errors import LabkitError

_SIGNS = {PASSES: ("passes", "✓"), RUN_AGAIN: ("again", "↻"), TRIED: ("tried", "…"), NOT_STARTED: ("none", "○")}


@dataclass(frozen=True)
class LabProgress:
    """The progress of one lab. ``tasks`` in the lab's order; ``seconds`` of work; ``notes`` and ``news`` as shown."""

    lab: LabEntry
    tasks: tuple[TaskStanding, ...]
    seconds: float
    notes: tuple[str, ...] = ()
    news: tuple[str, ...] = ()

    @property
    def points(self) -> float:
        """Points of the test cells whose visible checks pass; hidden tests in the same cells may still fail."""
        return sum(one.points for one in self.tasks)

    @property
    def next(self) -> TaskStanding | None:
        """The first task that does not pass."""
        return next((one for one in self.tasks if one.state != PASSES), None)

    @property
    def says(self) -> str:
        """The number of tasks that pass, and the next task, in words."""
        passing = sum(one.state == PASSES for one in self.tasks)
        seen = sum(test.points for one in self.tasks for test in one.task.tests if test.visible)
        far = (
            f"{passing} of {len(self.tasks)} tasks pass the checks you see; "
            f"the cells that pass are worth {self.points:g} of {seen:g} points."
        )
        if self.next is None:
            return f"{far} Before you hand in: Kernel, Restart Kernel and Run All Cells, save, and look here again."
        title = self.next.task.title
        stop = "" if title.endswith(("?", "!")) else "."
        return f"{far} Next is task {self.tasks.index(self.next) + 1} · {title}{stop}"

    def state(self) -> dict[str, Any]:
        """Return the values that the widget draws."""
        ladders = all_notes()
        tasks = []
        for one in self.tasks:
            state, mark = _SIGNS[one.state]
            rungs = len(ladders[one.task.name].hints) if one.task.name in ladders else 0
            tasks.append(
                {
                    "title": one.task.title,
                    "state": state,
                    "mark": mark,
                    "words": _words(one),
                    "points": one.points,
                    "of": one.task.points,
                    "hints": f"{min(one.hints, rungs)} of {rungs}" if rungs else "",
                }
            )
        pause = f"a pause counts for {PAUSE_SECONDS / 60:g} minutes at most"
        notes = [*_about_hidden(self.lab), f"At work for {spell(self.seconds)}; {pause}."]
        return {
            "lab": self.lab.title,
            "tasks": tasks,
            "says": self.says,
            "notes": [*notes, *self.notes],
            "news": list(self.news),
        }

    def __str__(self) -> str:
        shown = self.state()
        wide = max(len(task["title"]) for task in shown["tasks"])
        rows = [
            f"{number:3}  {task['title']:{wide}}  {task['points']:2g} of {task['of']:2g} points  "
            f"{task['mark']} {task['words']}"
            for number, task in enumerate(shown["tasks"], start=1)
        ]
        return "\n".join([shown["lab"], *rows, shown["says"], *shown["notes"], *shown["news"]])

    __repr__ = __str__


def progress_of(record: NotebookRecord, path: str) -> LabProgress:
    """Return the progress of ``record`` and of the notebook saved at ``path``, with news of a newer release."""
    told: tuple[str, ...] = ()
    if (saved := notebook.read(path)) is not None:
        sources = saved.sources()
        record.saved({task.name: sources[task.name] for task in record.lab.tasks if task.name in sources}, saved.at)
        try:
            found = news.changes(record.lab, saved.cells, path)
            told = tuple(found.lines(record.lab)) if found else ()
        except LabkitError as error:
            told = ("Whether your copy is the newest is not known", str(error))
    return LabProgress(record.lab, record.standings(), record.seconds, news=told)


def spell(seconds: float) -> str:
    """Format a duration in hours and minutes.

    Example:
        >>> spell(4_000), spell(59)
        ('1 h 6 min', '0 min')
    """
    hours, minutes = divmod(int(seconds // 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


def _words(one: TaskStanding) -> str:
    if one.state == RUN_AGAIN:
        return "passed before your last edit: run its checks again"
    if one.unknown:
        return f"{', '.join(one.unknown)} is not the test that was handed out, and earns nothing"
    if one.failing and one.state == TRIED:
        return f"tried: {', '.join(one.failing)} fail{'s' if len(one.failing) == 1 else ''}"
    return one.state


def _about_hidden(lab: LabEntry) -> Iterator[str]:
    tests = [test for task in lab.tasks for test in task.tests]
    shared = sum(test.points for test in tests if test.hidden and test.visible)
    unseen = sum(test.points for test in tests if not test.visible)
    if shared:
        yield f"In cells worth {shared:g} of the points, tests that you do not see (other sizes, values) decide, too."
    if unseen:
        yield f"{unseen:g} more points are decided by tests that you do not see at all."
