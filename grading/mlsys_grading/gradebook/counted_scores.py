"""Scores that count for one submission, a person's marks before the machine's, as feedback and exports show them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from nbgrader.api import Assignment, Comment, Grade, SubmittedAssignment, SubmittedNotebook
from sqlalchemy import ColumnElement, Table, func, select
from sqlalchemy.engine import Connection

from mlsys_grading.gradebook.cells import CellRows

_GRADE, _COMMENT = Grade.__table__, Comment.__table__
_SUBMITTED, _NOTEBOOK = SubmittedAssignment.__table__, SubmittedNotebook.__table__


@dataclass(frozen=True)
class CellStanding:
    """The score that counts for one cell; None until a machine or a person has given one."""

    score: float | None = None
    extra_credit: float = 0.0
    is_manual: bool = False
    needs_manual_grade: bool = False
    comment: str = ""


@dataclass(frozen=True)
class Standing:
    """One submission in the terms of ``nbgrader export``; cells by their names.

    Example:
        >>> Standing({"f_test": CellStanding(3.0)}, raw_score=3.0, late_penalty=5.0).score
        0.0
    """

    cells: Mapping[str, CellStanding]
    raw_score: float
    late_penalty: float

    @property
    def score(self) -> float:
        return max(0.0, self.raw_score - self.late_penalty)


def read_standing(connection: Connection, rows: CellRows, student: str) -> Standing | None:
    """Read a student's standing; None if nothing was handed in."""
    found = find_submission(connection, rows, student)
    if found is None:
        return None
    graded = select(_GRADE).where(of_notebook(_GRADE, rows.graded.values(), found.notebook))
    grades = {row.cell_id: row for row in connection.execute(graded)}
    comment = select(_COMMENT.c.cell_id, Comment.comment.label("comment"))
    commented = connection.execute(comment.where(of_notebook(_COMMENT, rows.commented.values(), found.notebook)))
    comments = {row.cell_id: row.comment or "" for row in commented}
    cells = {}
    for name in dict.fromkeys([*rows.graded, *rows.commented]):
        said = comments.get(rows.commented.get(name, ""), "")
        grade = grades.get(rows.graded.get(name, ""))
        cells[name] = CellStanding(comment=said) if grade is None else _cell(grade, said)
    query = select(_NOTEBOOK.c.late_submission_penalty).where(_NOTEBOOK.c.id == found.notebook)
    penalty = connection.execute(query).scalar() or 0.0
    return Standing(cells, total(connection, rows, found.notebook), penalty)


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


def total(connection: Connection, rows: CellRows, notebook: str) -> float:
    """Return the score of a submitted notebook, as nbgrader adds it up."""
    query = select(func.coalesce(func.sum(Grade.score), 0.0))
    return float(connection.execute(query.where(of_notebook(_GRADE, rows.graded.values(), notebook))).scalar_one())


def of_notebook(table: Table, cells: Collection[str], notebook: str) -> ColumnElement[bool]:
    """Select the rows of one submitted notebook, by cell too: nbgrader's only index begins with the cells."""
    return table.c.cell_id.in_(list(cells)) & (table.c.notebook_id == notebook)


def _cell(grade: Any, comment: str) -> CellStanding:
    is_manual = grade.manual_score is not None
    score = grade.manual_score if is_manual else grade.auto_score
    return CellStanding(score, grade.extra_credit or 0.0, is_manual, grade.needs_manual_grade, comment)
