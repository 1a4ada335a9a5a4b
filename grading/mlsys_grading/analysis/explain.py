"""One student's task explained: its text, the answer, each test's mark with its reason, and similar wrong answers.

For instructors: it quotes what hidden tests said. Students get ``gradebook.feedback``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mlsys_grading.analysis.answers import answers_of
from mlsys_grading.analysis.misconceptions import Profiles, Resemblance, marks_of, profile, resemblances
from mlsys_grading.gradebook.counted_scores import CellStanding, Standing
from mlsys_grading.gradebook.reasons import reason
from mlsys_grading.gradebook.said import CheckMessage, check_message
from mlsys_grading.gradebook.sheet import points_text
from mlsys_grading.gradebook.text import printable
from mlsys_grading.lab import Lab, Task
from mlsys_grading.result import CellMark, Result
from mlsys_labkit.errors import LabkitError

_MOST_LINES = 20  # lines shown of the student code's output
_MOST_CELLS = 6  # failed cells shown, besides the task's own
_LIKE = {
    "same code": "It is the wrong answer {}: {}",
    "same results": "It gives the results of the wrong answer {}: {}",
    "same failures": "It fails the tests that the wrong answer {} fails, with other results: {}",
}


@dataclass(frozen=True)
class Tested:
    """One test: ``why`` it lost points in plain words, and its message, ``said``; both are empty for a pass.

    ``by_hand`` is what a person made of it in the gradebook.
    """

    name: str
    points: float
    max_points: float
    why: str
    said: str
    printed: str
    hidden: bool
    by_hand: str = ""

    @property
    def passed(self) -> bool:
        return self.points >= self.max_points

    @property
    def message(self) -> CheckMessage | None:
        """The message of a check in parts; None for any other error."""
        kind, _, line = self.said.partition(": ")
        return check_message(line) if kind == "CheckError" else None

    def lines(self) -> Iterator[str]:
        """Write the lines that :class:`TaskExplanation` prints."""
        hidden = ", hidden in part" if self.hidden else ""
        verdict = "passed" if self.passed else "failed" if self.points <= 0 else "passed in part"
        yield f"{self.name}: {verdict}, {points_text(self.points)} of {points_text(self.max_points)}{hidden}"
        if self.why:
            yield f"    {self.why}"
        if self.said:
            yield f"    it said: {self.said}"
        if self.printed.strip() and not self.passed:
            printed = self.printed.strip("\n").splitlines()
            yield "    student code printed:"
            yield from (f"      {line}" for line in printed[:_MOST_LINES])
            if len(printed) > _MOST_LINES:
                yield f"      ... and {len(printed) - _MOST_LINES} more lines"
        if self.by_hand:
            yield f"    {self.by_hand}"


@dataclass(frozen=True)
class TaskExplanation:
    """One task of one student.

    Attributes:
        title: the heading of the task; "" if there is none.
        asked: the text of the task.
        answer: empty if there is none.
        raised: what the answer's own cell raised, or that it ended its process.
        tests: each with its verdict.
        resembles: the lab's wrong answers that it is like.
        oddities: of the whole submission: what is unusual about it, and how often it ended its process.
    """

    student: str
    lab: str
    task: str
    points: float
    max_points: float
    title: str
    asked: str
    answer: str
    raised: str
    tests: tuple[Tested, ...]
    resembles: tuple[Resemblance, ...]
    oddities: tuple[str, ...] = ()

    def __str__(self) -> str:
        got, most = points_text(self.points), points_text(self.max_points)
        lines = [f"{self.student}, {self.task} of {self.lab}: {got} of {most} points"]
        if self.title or self.asked:
            lines += ["", f"asked: {self.title}", *_indented(self.asked)]
        wrote = ["wrote:", *_indented(self.answer)] if self.answer else ["wrote nothing: the stub is as it was"]
        lines += ["", *wrote]
        if self.raised:
            lines += ["", f"its own cell failed: {self.raised}"]
        for test in self.tests:
            lines += ["", *test.lines()]
        for like in self.resembles:
            lines += ["", _LIKE[like.how].format(like.wrong, like.misconception)]
        if self.oddities:
            lines += ["", "about the whole submission:", *(f"    {oddity}" for oddity in self.oddities)]
        return "\n".join(printable(line) for line in lines)


def explain(
    lab: Lab,
    result: Result,
    submission: Sequence[Mapping[str, Any]],
    task: str,
    profiles: Profiles | None = None,
    standing: Standing | None = None,
) -> TaskExplanation:
    """Explain the marks of one task of one student.

    Args:
        submission: cells as ``examine.notebook.read_cells`` reads them.
        task: its name, or the name of one of its tests.
        profiles: how the wrong answers fail, of ``profiles.find_profiles``.
        standing: what the gradebook says, for marks and comments that a person gave.

    Raises LabkitError for a task that the lab does not have, and for a result without marks.
    """
    if result.status == "infrastructure":
        raise LabkitError(f"{result.student}: {lab.name} was not graded: {result.why}; grade it again")
    found = find_task(lab, task)
    if found is None:
        raise LabkitError(
            f"{lab.name} has no task {task!r}; its tasks are {', '.join(each.name for each in lab.tasks)}"
        )
    answer = next((each.source for each in answers_of(lab, submission) if each.cell == found.name), "")
    marks = marks_of(found, result.marks)
    by_hand = standing.cells if standing else {}
    raised = dict(result.failed_cells or {})
    return TaskExplanation(
        result.student,
        lab.name,
        found.name,
        sum(mark.points for mark in marks),
        found.points,
        *lab.asked(found),
        answer,
        raised.pop(found.name, ""),
        tuple(_tested(mark, by_hand.get(mark.name, CellStanding())) for mark in marks),
        resemblances(lab, found, answer, profile(found, marks), profiles) if answer else (),
        tuple(_oddities(result, raised, by_hand.get(found.name, CellStanding()))),
    )


def find_task(lab: Lab, name: str) -> Task | None:
    """Return the task of that name, or the one with the test of that name; None if there is none."""
    return next((task for task in lab.tasks if name in (task.name, *(test.grade_id for test in task.tests))), None)


def _tested(mark: CellMark, standing: CellStanding) -> Tested:
    by_hand = ""
    if standing.is_manual and standing.score is not None:
        by_hand = f"in the gradebook it counts {points_text(standing.score)}, by a person"
    if standing.extra_credit:
        by_hand += f"{'; ' if by_hand else 'in the gradebook: '}{points_text(standing.extra_credit)} extra"
    why = reason(mark, with_kind=True) if mark.points < mark.max_points else ""
    return Tested(mark.name, mark.points, mark.max_points, why, mark.error, mark.printed, mark.hidden, by_hand)


def _oddities(result: Result, raised: Mapping[str, str], standing: CellStanding) -> Iterator[str]:
    if standing.comment:
        yield f"comment on this task: {' '.join(standing.comment.split())}"
    yield from result.oddities
    yield from (f"{name} failed: {error}" for name, error in list(raised.items())[:_MOST_CELLS])
    if len(raised) > _MOST_CELLS:
        yield f"... and {len(raised) - _MOST_CELLS} more cells that failed"
    if result.restarts:
        times = "once" if result.restarts == 1 else f"{result.restarts} times"
        yield f"its process had to be started anew {times}: code ended it, or did not end"
    if not result.sandbox:
        yield "it was graded without a sandbox"


def _indented(text: str) -> list[str]:
    return [f"    {line}" for line in text.strip("\n").splitlines()]
