"""Scores for a platform: points by task, and reasons for missing ones that are fit for students."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mlsys_grading.gradebook.reasons import reason
from mlsys_grading.gradebook.registered import RegisteredLab
from mlsys_grading.gradebook.sheet import points_text
from mlsys_grading.result import Result


@dataclass(frozen=True)
class Question:
    """One task of a submission. ``feedback`` quotes no output of student code and no input of a hidden test."""

    name: str
    points: float
    max_points: float
    feedback: str = ""


@dataclass(frozen=True)
class Score:
    """One submission as a platform stores it. ``points`` may be less than the questions' sum: a late penalty."""

    student: str
    lab: str
    points: float
    max_points: float
    questions: tuple[Question, ...] = ()

    @property
    def feedback(self) -> str:
        """All questions on one line."""
        told = [
            f"{each.name}: {points_text(each.points)} of {points_text(each.max_points)}."
            + (f" {each.feedback}" if each.feedback else "")
            for each in self.questions
        ]
        if self.late_penalty:
            told.append(f"{points_text(self.late_penalty)} taken off for handing in late.")
        return " | ".join(told)

    @property
    def late_penalty(self) -> float:
        """Points taken off the questions' sum."""
        return max(0.0, round(sum(each.points for each in self.questions) - self.points, 2)) if self.questions else 0.0

    @property
    def told_penalty(self) -> str:
        """A note on the late penalty, which columns of questions alone would not show; "" without one."""
        if not self.late_penalty:
            return ""
        lost = points_text(self.late_penalty)
        return f"{self.student}: {lost} points off {self.lab} for lateness are in no task's column"


def questions_of(lab: RegisteredLab) -> dict[str, dict[str, float]]:
    """Return task -> graded cell -> its points, with the cells that a person marks.

    Graded cells before the first task belong to the task "".
    """
    found: dict[str, dict[str, float]] = {}
    task = ""
    for cell in lab.cells:
        task = cell.name if cell.kind in ("solution", "manual") else task
        if cell.kind in ("test", "manual", "task"):
            found.setdefault(task, {})[cell.name] = cell.max_score
    return found


def score_of(
    result: Result,
    questions: Mapping[str, Mapping[str, float]],
    by_book: Mapping[str, float] | None = None,
    late_penalty: float = 0.0,
) -> Score | None:
    """Compute the score of one result; None for an infrastructure failure, which is no zero.

    Args:
        questions: of :func:`questions_of`.
        by_book: cell -> what counts in the gradebook, a person's marks and extra credit included; a cell that it
            lacks counts as the result has it.

    Example:
        >>> from mlsys_grading.result import CellMark
        >>> wrong = CellMark("f_test", 0.0, 2.0, "AssertionError: no", ("AssertionError",))
        >>> result = Result("j", "lab00", "ada", (wrong, CellMark("g_test", 3.0, 3.0)))
        >>> score = score_of(result, {"f": {"f_test": 2}, "g": {"g_test": 3}})
        >>> score.points, score.feedback
        (3.0, 'f: 0 of 2. A result is not what the test expects. | g: 3 of 3.')
    """
    if result.status == "infrastructure":
        return None
    marks = {mark.name: mark for mark in result.marks}
    told = []
    for name, cells in questions.items():
        points = {cell: (by_book or {}).get(cell, marks[cell].points if cell in marks else 0.0) for cell in cells}
        lost = [marks[cell] for cell, most in cells.items() if points[cell] < most and cell in marks]
        feedback = " ".join(dict.fromkeys(reason(mark) for mark in lost if reason(mark)))
        told.append(Question(name, sum(points.values()), sum(cells.values()), feedback))
    total = sum(question.points for question in told)
    most = sum(question.max_points for question in told)
    return Score(result.student, result.lab, max(0.0, total - late_penalty), most, tuple(told))
