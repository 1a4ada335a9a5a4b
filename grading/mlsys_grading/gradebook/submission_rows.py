"""One submission's rows in the gradebook: found, or added when it is new."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from nbgrader.api import Assignment, Student, SubmittedAssignment, SubmittedNotebook
from sqlalchemy import select
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.engine import Connection

from mlsys_grading.gradebook.cells import CellRows

__all__ = ["add_submission", "find_submission"]

_SUBMITTED, _NOTEBOOK = SubmittedAssignment.__table__, SubmittedNotebook.__table__


def find_submission(connection: Connection, rows: CellRows, student: str) -> Any:
    """Return ids, times and due date of one submission; None if there is none."""
    query = (
        select(
            _SUBMITTED.c.id.label("submitted"),
            _NOTEBOOK.c.id.label("notebook"),
            _SUBMITTED.c.timestamp,
            _SUBMITTED.c.extension,
            Assignment.duedate,
        )
        .join(_NOTEBOOK, _NOTEBOOK.c.assignment_id == _SUBMITTED.c.id)
        .join(Assignment, Assignment.id == _SUBMITTED.c.assignment_id)
        .where(
            _SUBMITTED.c.assignment_id == rows.assignment,
            _SUBMITTED.c.student_id == student,
            _NOTEBOOK.c.notebook_id == rows.notebook,
        )
    )
    return connection.execute(query).first()


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
