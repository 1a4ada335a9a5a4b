"""The record of one notebook: the answers that ran, the tests that passed on them, and the time at work.

It has no side effects: cells go in, standings come out. Files, hooks and pictures are elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from mlsys_labkit._frontends.progress.catalogue import LabEntry, TaskEntry, defined, digest

SCHEMA = 1
PAUSE_SECONDS = 600.0  # a longer pause counts as this long, because the person has probably stopped working
SAVED_LATER_SECONDS = 2.0  # a file's clock and ours may differ by this much

NOT_STARTED, TRIED, PASSES, RUN_AGAIN = "not started", "tried", "passes", "run again"


@dataclass(frozen=True)
class Edit:
    """The text of an answer that ran, or was saved, last."""

    digest: str
    at: float


@dataclass(frozen=True)
class Outcome:
    """A test's last run: on which text of the answer, and whether the test is the one handed out."""

    passed: bool
    answer: str
    genuine: bool = True


@dataclass(frozen=True)
class TaskStanding:
    """The state of one task. ``points`` are those of its test cells that pass; hidden tests are not known here."""

    task: TaskEntry
    state: str
    points: float
    failing: tuple[str, ...]
    unknown: tuple[str, ...]
    hints: int


@dataclass
class NotebookRecord:
    """The record that is kept of one notebook of ``lab``.

    Example:
        >>> from mlsys_labkit._frontends.progress.catalogue import lab
        >>> record = NotebookRecord(lab("lab01"))
        >>> record.ran("def offset(): ...", "offset", True, now=0.0)
        True
        >>> record.standing(record.lab.tasks[0]).state
        'tried'
    """

    lab: LabEntry
    seconds: float = 0.0
    last: float = 0.0
    edits: dict[str, Edit] = field(default_factory=dict)
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    hints: dict[str, int] = field(default_factory=dict)
    predictions: dict[str, str] = field(default_factory=dict)  # task -> digest of the option that was chosen

    def tick(self, now: float) -> None:
        """Count the time up to ``now``, in seconds since 1970, as time at work."""
        if self.last:
            self.seconds += min(max(now - self.last, 0.0), PAUSE_SECONDS)
        self.last = now

    def ran(self, source: str, cell_id: str, passed: bool, now: float) -> bool:
        """Record that a cell has run; return True if it is one of the lab's answers or tests.

        A cell is identified by its id; without ids, a test by its text and an answer by the names it defines. An answer
        that is defined again anywhere, also in a scratch cell, has to be tested again.
        """
        text = digest(source)
        task, test = self.lab.by_digest.get(text) or self.lab.by_id.get(cell_id) or (None, None)
        if task is None:
            tasks = {self.lab.by_name[name].name for name in defined(source) if name in self.lab.by_name}
            self.edits.update({name: Edit(text, now) for name in tasks})
            return bool(tasks)
        if test is None:
            self.edits[task.name] = Edit(text, now)
        else:
            self.outcomes[test.id] = Outcome(passed, self._answer(task), text == test.digest)
        return True

    def saved(self, answers: Mapping[str, str], at: float) -> None:
        """Record the ``answers`` (task -> text) of the notebook's file, which is what is handed in, saved at ``at``."""
        for task in self.lab.tasks:
            known = self.edits.get(task.name)
            if task.name in answers and (known is None or at > known.at + SAVED_LATER_SECONDS):
                self.edits[task.name] = Edit(digest(answers[task.name]), at)

    def standing(self, task: TaskEntry) -> TaskStanding:
        """Return the state of ``task``, and the points of the checks that pass on the answer as it is now."""
        answer = self._answer(task)
        fresh = {test.id: self.outcomes[test.id] for test in task.tests if test.id in self.outcomes}
        current = {name: one for name, one in fresh.items() if one.answer == answer}
        passing = [test for test in task.tests if (one := current.get(test.id)) and one.passed and one.genuine]
        seen = [test for test in task.tests if test.visible]
        if seen and len([test for test in passing if test.visible]) == len(seen):
            state = PASSES
        elif any(one.passed and name not in current for name, one in fresh.items()) and answer != task.stub:
            state = RUN_AGAIN
        elif answer in ("", task.stub):
            state = NOT_STARTED
        else:
            state = TRIED
        return TaskStanding(
            task,
            state,
            sum(test.points for test in passing if test.visible),
            tuple(name for name, one in current.items() if not one.passed),
            tuple(name for name, one in current.items() if one.passed and not one.genuine),
            self.hints.get(task.name, 0),
        )

    def standings(self) -> tuple[TaskStanding, ...]:
        return tuple(self.standing(task) for task in self.lab.tasks)

    def _answer(self, task: TaskEntry) -> str:
        edit = self.edits.get(task.name)
        return edit.digest if edit else ""

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "lab": self.lab.name,
            "seconds": round(self.seconds, 1),
            "last": self.last,
            "edits": {name: asdict(edit) for name, edit in self.edits.items()},
            "outcomes": {name: asdict(one) for name, one in self.outcomes.items()},
            "hints": self.hints,
            "predictions": self.predictions,
        }

    @classmethod
    def from_json(cls, lab: LabEntry, kept: Mapping[str, Any]) -> NotebookRecord:
        """Read a record. Raises KeyError, TypeError or ValueError for content that this class has not written."""
        if kept["schema"] != SCHEMA or kept["lab"] != lab.name:
            raise ValueError("another lab's record, or another version's")
        tasks, tests = {task.name for task in lab.tasks}, {test.id for task in lab.tasks for test in task.tests}
        return cls(
            lab,
            float(kept["seconds"]),
            float(kept["last"]),
            {name: Edit(str(one["digest"]), float(one["at"])) for name, one in kept["edits"].items() if name in tasks},
            {
                name: Outcome(bool(one["passed"]), str(one["answer"]), bool(one["genuine"]))
                for name, one in kept["outcomes"].items()
                if name in tests
            },
            {name: int(rungs) for name, rungs in kept["hints"].items() if name in tasks},
            {str(name): str(option) for name, option in kept.get("predictions", {}).items()},
        )
