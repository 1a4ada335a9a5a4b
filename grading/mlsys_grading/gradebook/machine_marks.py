"""The rows of one submission that the machine writes into the gradebook: marks, comments, the late penalty."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any, Protocol

from nbgrader.api import Comment, Grade, Student, SubmittedAssignment, SubmittedNotebook
from sqlalchemy import ColumnElement, or_, select
from sqlalchemy.dialects.sqlite import Insert, insert
from sqlalchemy.engine import Connection

from mlsys_grading.gradebook.cells import CellRows
from mlsys_grading.gradebook.counted_scores import find_submission, of_notebook, total
from mlsys_grading.gradebook.database import GRADED, upsert
from mlsys_grading.gradebook.submission import SubmittedCell
from mlsys_grading.result import Result

_GRADE, _COMMENT = Grade.__table__, Comment.__table__
_SUBMITTED, _NOTEBOOK = SubmittedAssignment.__table__, SubmittedNotebook.__table__
_OF_CELL = ["cell_id", "notebook_id"]

NO_RESPONSE = "No response."
"""nbgrader's comment on an answer that is still the stub."""


class LatePenalty(Protocol):
    """nbgrader's plugin for late submissions: the points to take off, or None."""

    def late_submission_penalty(self, student_id: str, score: float, total_seconds_late: float) -> float | None: ...


def add_submission(
    connection: Connection, rows: CellRows, student: str, handed_in: datetime | None
) -> tuple[str, float]:
    """Return the submitted notebook's id, made if it is new, and how many seconds late it is."""
    found = find_submission(connection, rows, student)
    if found is None:
        connection.execute(insert(Student.__table__).on_conflict_do_nothing(), {"id": student})
        ids = {"assignment_id": rows.assignment, "student_id": student}
        connection.execute(insert(_SUBMITTED).on_conflict_do_nothing(), ids)
        submitted = connection.execute(select(_SUBMITTED.c.id).filter_by(**ids)).scalar_one()
        connection.execute(_NOTEBOOK.insert(), {"assignment_id": submitted, "notebook_id": rows.notebook})
        found = find_submission(connection, rows, student)
    moment = handed_in or found.timestamp
    if moment != found.timestamp:
        connection.execute(_SUBMITTED.update().where(_SUBMITTED.c.id == found.submitted).values(timestamp=moment))
    if moment is None or found.duedate is None:
        return found.notebook, 0.0
    due = found.duedate + found.extension if found.extension else found.duedate
    return found.notebook, max(0.0, (moment - due).total_seconds())


def write_marks(
    connection: Connection,
    rows: CellRows,
    notebook: str,
    submission: Sequence[SubmittedCell],
    scores: Mapping[str, float | None],
    job: str,
) -> Mapping[str, float | None] | None:
    """Write marks and comments; return the marks of before, or None the first time.

    A new job asks for another look at a cell that a person has marked.
    """
    known = connection.execute(select(GRADED.c.job).where(GRADED.c.notebook_id == notebook)).scalar()
    before = None if known is None else _scores_by_machine(connection, rows, notebook)
    _write_grades(connection, rows, notebook, scores, look_again=known != job)
    _write_comments(connection, rows, notebook, submission)
    return before


def write_penalty(
    connection: Connection, rows: CellRows, notebook: str, student: str, seconds_late: float, late: LatePenalty | None
) -> float | None:
    """Write what ``late`` takes off the score for so many seconds, and return it."""
    penalty = None
    if seconds_late > 0 and late is not None:
        score = total(connection, rows, notebook)
        penalty = late.late_submission_penalty(student, score, seconds_late)
        penalty = None if penalty is None else min(max(0.0, penalty), score)
    here = _NOTEBOOK.c.id == notebook
    connection.execute(_NOTEBOOK.update().where(here).values(late_submission_penalty=penalty))
    return penalty


def write_job(connection: Connection, notebook: str, result: Result) -> None:
    """Note the job that the marks of a submitted notebook came from."""
    values = {"notebook_id": notebook, "job": result.job, "sandbox": result.sandbox}
    upsert(connection, GRADED, ["notebook_id"], [values])


def _scores_by_machine(connection: Connection, rows: CellRows, notebook: str) -> dict[str, float | None]:
    query = select(_GRADE.c.cell_id, _GRADE.c.auto_score).where(of_notebook(_GRADE, rows.graded.values(), notebook))
    found = {row.cell_id: row.auto_score for row in connection.execute(query)}
    return {name: found[cell] for name, cell in rows.graded.items() if cell in found and name not in rows.tasks}


def _write_grades(
    connection: Connection, rows: CellRows, notebook: str, scores: Mapping[str, float | None], look_again: bool
) -> None:
    cells = {name: {"cell_id": cell, "notebook_id": notebook} for name, cell in rows.graded.items()}
    graded = [
        cells[name] | {"auto_score": score, "needs_manual_grade": score is None} for name, score in scores.items()
    ]
    if graded:  # an empty list would be one row of defaults
        connection.execute(_new_grades(look_again), graded)
    if tasks := [cells[name] | {"needs_manual_grade": True} for name in rows.tasks]:
        connection.execute(insert(_GRADE).on_conflict_do_nothing(), tasks)


@cache
def _new_grades(look_again: bool) -> Insert:
    new = insert(_GRADE)
    changed: dict[str, ColumnElement[Any]] = {"auto_score": new.excluded.auto_score}
    if look_again:
        changed["needs_manual_grade"] = or_(new.excluded.auto_score.is_(None), _GRADE.c.manual_score.is_not(None))
    return new.on_conflict_do_update(index_elements=_OF_CELL, set_=changed)


def _write_comments(connection: Connection, rows: CellRows, notebook: str, submission: Sequence[SubmittedCell]) -> None:
    comments = [
        {"cell_id": rows.commented[cell.registered.name], "notebook_id": notebook, "auto_comment": _comment(cell)}
        for cell in submission
        if cell.registered and cell.registered.name in rows.commented
    ]
    upsert(connection, _COMMENT, _OF_CELL, comments)


def _comment(cell: SubmittedCell) -> str | None:
    if cell.registered is None or cell.registered.kind == "task":
        return None
    if cell.is_missing:
        return "This cell is missing from the submission."
    return NO_RESPONSE if cell.is_untouched else None
