"""The lab's rows in the gradebook: assignment, notebook and cells, and what becomes of them when the lab changes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from nbgrader.api import (
    Assignment,
    BaseCell,
    Comment,
    Grade,
    GradeCell,
    Notebook,
    SolutionCell,
    SourceCell,
    SubmittedNotebook,
    TaskCell,
    new_uuid,
)
from sqlalchemy import Table, func, select
from sqlalchemy.dialects.sqlite import insert
from sqlalchemy.engine import Connection

from mlsys_grading.gradebook.database import upsert
from mlsys_grading.gradebook.registered import RegisteredLab
from mlsys_labkit.errors import LabkitError

_ASSIGNMENT, _NOTEBOOK, _SOURCE, _BASE = (kind.__table__ for kind in (Assignment, Notebook, SourceCell, BaseCell))
_SOURCES = select(_SOURCE.c.name, _SOURCE.c.source, _SOURCE.c.checksum)
_KINDS: Mapping[str, Table] = {kind.__name__: kind.__table__ for kind in (GradeCell, SolutionCell, TaskCell)}
_ROWS_OF = {"test": ("GradeCell",), "manual": ("GradeCell", "SolutionCell"), "solution": ("SolutionCell",)}
_ROWS_OF |= {"task": ("TaskCell",), "locked": ()}
_GRADED, _COMMENTED = ("GradeCell", "TaskCell"), ("SolutionCell", "TaskCell")


@dataclass(frozen=True)
class Registration:
    """The changes made by registering a lab: names of cells added and removed, and submissions that had to follow."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    submissions: int = 0


@dataclass(frozen=True)
class CellRows:
    """Ids of a lab's rows; ``graded`` and ``commented`` by the cell's name."""

    assignment: str
    notebook: str
    graded: Mapping[str, str]
    commented: Mapping[str, str]
    tasks: Collection[str]

    @classmethod
    def read(cls, connection: Connection, lab: RegisteredLab) -> CellRows:
        """Look the rows up; raises LabkitError if the gradebook has another state of the lab."""
        notebook = _notebook(connection, lab.name)
        if notebook is None:
            raise LabkitError(f"{lab.name} is not in the gradebook; register it first")
        found = _cells(connection, notebook.id)
        sources = {tuple(row) for row in connection.execute(_SOURCES.where(_SOURCE.c.notebook_id == notebook.id))}
        if set(found) != _wanted(lab) or sources != {(c.name, c.source, c.metadata.get("checksum")) for c in lab.cells}:
            raise LabkitError(f"{lab.name} has changed since it was put into the gradebook; register it again")
        graded = {name: at for (name, kind), at in found.items() if kind in _GRADED}
        commented = {name: at for (name, kind), at in found.items() if kind in _COMMENTED}
        tasks = {name for name, kind in found if kind == "TaskCell"}
        return cls(notebook.assignment_id, notebook.id, graded, commented, tasks)


def write_cells(connection: Connection, lab: RegisteredLab, course: str, drop_manual: bool) -> Registration:
    """Make the gradebook's rows match the lab; see ``Gradebook.register``."""
    notebook = _notebook_id(connection, lab, course)
    there, wanted = _cells(connection, notebook), _wanted(lab)
    gone = {at: name for (name, kind), at in there.items() if (name, kind) not in wanted}
    if not drop_manual:
        _refuse_to_drop(connection, lab.name, gone)
    for table in (Grade.__table__, Comment.__table__):
        connection.execute(table.delete().where(table.c.cell_id.in_(gone)))
    for table in (*_KINDS.values(), _BASE):
        connection.execute(table.delete().where(table.c.id.in_(gone)))
    of_lab = select(SubmittedNotebook.id).where(SubmittedNotebook.notebook_id == notebook)
    submitted = list(connection.execute(of_lab).scalars())
    came = []
    for cell in lab.cells:
        for kind in _ROWS_OF[cell.kind]:
            graded = {} if kind == "SolutionCell" else {"max_score": cell.max_score, "cell_type": cell.cell_type}
            table = _KINDS[kind]
            if at := there.get((cell.name, kind)):
                if graded:
                    connection.execute(table.update().where(table.c.id == at).values(graded))
                continue
            came.append(cell.name)
            at = new_uuid()
            connection.execute(_BASE.insert(), {"id": at, "name": cell.name, "notebook_id": notebook, "type": kind})
            connection.execute(table.insert(), {"id": at} | graded)
            _into_submissions(connection, kind, at, submitted)
    _write_sources(connection, lab, notebook)
    added, removed = tuple(dict.fromkeys(came)), tuple(dict.fromkeys(gone.values()))
    return Registration(added, removed, len(submitted) if added or removed else 0)


def _wanted(lab: RegisteredLab) -> set[tuple[str, str]]:
    return {(cell.name, kind) for cell in lab.cells for kind in _ROWS_OF[cell.kind]}


def _cells(connection: Connection, notebook: str) -> dict[tuple[str, str], str]:
    query = select(_BASE.c.name, _BASE.c.type, _BASE.c.id).where(_BASE.c.notebook_id == notebook)
    return {(name, kind): at for name, kind, at in connection.execute(query)}


def _notebook(connection: Connection, lab: str) -> Any:
    query = select(_NOTEBOOK.c.id, _NOTEBOOK.c.assignment_id).join(
        _ASSIGNMENT, _ASSIGNMENT.c.id == _NOTEBOOK.c.assignment_id
    )
    return connection.execute(query.where(_ASSIGNMENT.c.name == lab, _NOTEBOOK.c.name == lab)).first()


def _notebook_id(connection: Connection, lab: RegisteredLab, course: str) -> str:
    new = insert(_ASSIGNMENT).on_conflict_do_nothing(index_elements=["name"])
    connection.execute(new, {"name": lab.name, "course_id": course})
    assignment = connection.execute(select(_ASSIGNMENT.c.id).where(_ASSIGNMENT.c.name == lab.name)).scalar_one()
    values = {"name": lab.name, "assignment_id": assignment, "kernelspec": lab.kernelspec}
    upsert(connection, _NOTEBOOK, ["name", "assignment_id"], [values])
    return str(_notebook(connection, lab.name).id)


def _into_submissions(connection: Connection, kind: str, cell: str, submitted: Collection[str]) -> None:
    rows = [{"cell_id": cell, "notebook_id": notebook} for notebook in submitted]
    if rows and kind in _GRADED:
        connection.execute(Grade.__table__.insert(), [row | {"needs_manual_grade": True} for row in rows])
    if rows and kind in _COMMENTED:
        connection.execute(Comment.__table__.insert(), rows)


def _write_sources(connection: Connection, lab: RegisteredLab, notebook: str) -> None:
    names = [cell.name for cell in lab.cells]
    connection.execute(_SOURCE.delete().where(_SOURCE.c.notebook_id == notebook, _SOURCE.c.name.not_in(names)))
    sources = [
        {
            "name": cell.name,
            "notebook_id": notebook,
            "cell_type": cell.cell_type,
            "locked": cell.is_locked,
            "source": cell.source,
            "checksum": cell.metadata.get("checksum"),
        }
        for cell in lab.cells
    ]
    upsert(connection, _SOURCE, ["name", "notebook_id"], sources)


def _refuse_to_drop(connection: Connection, lab: str, gone: Mapping[str, str]) -> None:
    grades, comments = Grade.__table__, Comment.__table__
    marked = grades.c.manual_score.is_not(None) | grades.c.extra_credit.is_not(None)
    for table, by_hand in ((grades, marked), (comments, comments.c.manual_comment.is_not(None))):
        query = select(table.c.cell_id, func.count()).where(table.c.cell_id.in_(gone), by_hand)
        for cell, count in connection.execute(query.group_by(table.c.cell_id)):
            what = "marks" if table is grades else "comments"
            raise LabkitError(
                f"{lab}: the cell {gone[cell]} is gone from the source, and {what} that a person gave on {count} "
                "submissions would go with it; put the cell back, or register with drop_manual"
            )
