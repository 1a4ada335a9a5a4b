"""``grades/LAB.csv``: the points of each student, task by task; a late penalty is a column of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from mlsys_grading.gradebook.gradebook import Gradebook
from mlsys_grading.gradebook.registered import RegisteredLab
from mlsys_grading.gradebook.scores import Score, questions_of, score_of
from mlsys_grading.gradebook.sheet import Sheet, points_text
from mlsys_grading.result import Result

GRADES = "grades"
"""The folder in the course's."""

_FIXED = ("student", "score", "max score", "late penalty")

ResultOf = Callable[[str], Result | None]
"""Return the last result of a student's submission, if there is one."""


def scores_of(book: Gradebook, lab: RegisteredLab, result_of: ResultOf) -> tuple[list[Score], list[str]]:
    """Return each student's score in the gradebook, and notes to read before it is handed over."""
    scores, notes = [], []
    questions = questions_of(lab)
    for student in sorted(book.jobs(lab.name)):
        result, standing = result_of(student), book.standing(lab, student)
        if result is None or standing is None:
            notes.append(f"{student}: in the gradebook without its tests' verdicts; run: labkit grade {lab.name}")
            continue
        by_book = {name: (cell.score or 0.0) + cell.extra_credit for name, cell in standing.cells.items()}
        if waiting := [name for name, cell in standing.cells.items() if cell.needs_manual_grade]:
            notes.append(f"{student}: {', '.join(waiting)} waits for a person's mark")
        if score := score_of(result, questions, by_book, standing.late_penalty):
            scores.append(score)
    return scores, notes


def write_grades(course: Path, lab: RegisteredLab, book: Gradebook, result_of: ResultOf) -> None:
    """Write ``grades/LAB.csv``, whole or not at all."""
    scores, _ = scores_of(book, lab, result_of)
    sheet, _ = grades_sheet(scores)
    sheet.write(course / GRADES / f"{lab.name}.csv")


def grades_sheet(scores: Sequence[Score]) -> tuple[Sheet, tuple[str, ...]]:
    """Build a sheet with a row for each student and a column for each task, and a note for each guarded name.

    Example:
        >>> from mlsys_grading.gradebook.scores import Question
        >>> sheet, _ = grades_sheet([Score("ada", "lab00", 4.0, 10.0, (Question("f", 5.0, 10.0),))])
        >>> print(sheet.to_csv())
        student,score,max score,late penalty,f (10)
        ada,4,10,1,5
        <BLANKLINE>
    """
    questions = scores[0].questions if scores else ()
    header = (*_FIXED, *(f"{each.name} ({points_text(each.max_points)})" for each in questions))
    rows = tuple(
        (
            score.student,
            *map(points_text, (score.points, score.max_points, score.late_penalty)),
            *(points_text(each.points) for each in score.questions),
        )
        for score in sorted(scores, key=lambda score: score.student)
    )
    return Sheet(header, rows).guard_columns(0, _FIXED[:1])
