"""nbgrader's gradebook, written by its own models: one transaction a submission, the same however often it is done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from nbgrader.api import Assignment, SubmittedAssignment, SubmittedNotebook
from nbgrader.utils import parse_utc
from sqlalchemy import select
from sqlalchemy.engine import Connection

from mlsys_grading.gradebook.cells import CellRows, Registration, write_cells
from mlsys_grading.gradebook.counted_scores import Standing, read_standing
from mlsys_grading.gradebook.database import GRADED, open_database, transaction
from mlsys_grading.gradebook.machine_marks import LatePenalty, add_submission, write_job, write_marks, write_penalty
from mlsys_grading.gradebook.registered import RegisteredLab
from mlsys_grading.gradebook.submission import SubmittedCell
from mlsys_grading.result import Result
from mlsys_labkit.errors import LabkitError

_SUBMITTED, _NOTEBOOK = SubmittedAssignment.__table__, SubmittedNotebook.__table__


@dataclass(frozen=True)
class RecordedMarks:
    """The machine's marks of one submission, cell by cell.

    Attributes:
        before: the marks that stood there; None the first time.
        after: the marks that stand there now; a mark is None while an answer waits for a person.
    """

    student: str
    before: Mapping[str, float | None] | None
    after: Mapping[str, float | None]
    seconds_late: float = 0.0
    late_penalty: float | None = None


class Gradebook:
    """nbgrader's ``gradebook.db``.

    Args:
        path: of the database; it is made if it is not there.
        course: nbgrader's ``course_id``.
        late: the course's plugin for late submissions; None takes nothing off, as nbgrader does by default.

    Raises LabkitError, in one line, for a database that cannot be used; what was being written is not there then.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> lab = RegisteredLab("lab00_your_machine", ())
        >>> with TemporaryDirectory() as folder, Gradebook(Path(folder) / "gradebook.db") as book:
        ...     _ = book.register(lab)
        ...     _ = book.record(lab, (), Result("ab12", lab.name, "ada", ()))
        ...     book.jobs(lab.name)
        {'ada': 'ab12'}
    """

    def __init__(self, path: Path, course: str = "default_course", late: LatePenalty | None = None) -> None:
        self._path, self._course, self._late = path, course, late
        self._engine = open_database(path, course)
        self._rows: dict[str, tuple[RegisteredLab, CellRows]] = {}
        self._version = -1

    def __enter__(self) -> Gradebook:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the database."""
        self._engine.dispose()

    def register(self, lab: RegisteredLab, drop_manual: bool = False) -> Registration:
        """Make the assignment, its notebook and its cells match ``lab``; existing submissions are updated.

        nbgrader refuses cells that come or go while there are submissions. Here a cell that comes waits in every
        submission for its mark, and one that goes takes its marks along. Raises LabkitError, and changes nothing, if
        marks or comments that a person gave would go, unless ``drop_manual``.
        """
        self._rows.clear()
        with transaction(self._engine, self._path) as connection:
            return write_cells(connection, lab, self._course, drop_manual)

    def record(
        self, lab: RegisteredLab, submission: Sequence[SubmittedCell], result: Result, timestamp: str = ""
    ) -> RecordedMarks | None:
        """Write one submission's marks, comments and late penalty; return None for an infrastructure failure.

        What people wrote stays. A new job asks for another look at a cell that a person has marked, as nbgrader does;
        the same job again changes nothing.

        Args:
            timestamp: when it was handed in, as timestamp.txt has it; empty: what is known already stays.

        Raises LabkitError if ``result`` is not of this lab as it is registered.
        """
        if result.status == "infrastructure":
            return None
        scores = _scores(lab, submission, result)
        handed_in = _moment(timestamp, result)
        with transaction(self._engine, self._path) as connection:
            rows = self._cell_rows(connection, lab)
            notebook, seconds_late = add_submission(connection, rows, result.student, handed_in)
            before = write_marks(connection, rows, notebook, submission, scores, result.job)
            penalty = write_penalty(connection, rows, notebook, result.student, seconds_late, self._late)
            write_job(connection, notebook, result)
        return RecordedMarks(result.student, before, scores, seconds_late, penalty)

    def jobs(self, lab: str) -> dict[str, str]:
        """Return student -> the job whose marks are in the gradebook, which need not be graded again."""
        query = (
            select(_SUBMITTED.c.student_id, GRADED.c.job)
            .join(_NOTEBOOK, _NOTEBOOK.c.id == GRADED.c.notebook_id)
            .join(_SUBMITTED, _SUBMITTED.c.id == _NOTEBOOK.c.assignment_id)
            .join(Assignment, Assignment.id == _SUBMITTED.c.assignment_id)
            .where(Assignment.name == lab)
        )
        with transaction(self._engine, self._path, "DEFERRED") as connection:
            return {row.student_id: row.job for row in connection.execute(query)}

    def standing(self, lab: RegisteredLab, student: str) -> Standing | None:
        """Return the marks of one student that count, with people's comments; None if nothing was handed in."""
        with transaction(self._engine, self._path, "DEFERRED") as connection:
            return read_standing(connection, self._cell_rows(connection, lab), student)

    def _cell_rows(self, connection: Connection, lab: RegisteredLab) -> CellRows:
        """Return the ids of the lab's cells: looked up once, and again after another process has written."""
        version = connection.exec_driver_sql("PRAGMA data_version").scalar_one()
        if version != self._version:
            self._rows.clear()
            self._version = version
        known, rows = self._rows.get(lab.name, (None, None))
        if rows is None or known is not lab:
            rows = CellRows.read(connection, lab)
            self._rows[lab.name] = lab, rows
        return rows


def _scores(lab: RegisteredLab, submission: Sequence[SubmittedCell], result: Result) -> dict[str, float | None]:
    """Return the marks by the machine; None for an answer that a person has to mark."""
    if result.lab != lab.name or [mark.name for mark in result.marks] != [cell.name for cell in lab.tests]:
        raise LabkitError(
            f"{result.student}: the result is of other tests than {lab.name} has now; grade the submission again"
        )
    for mark, cell in zip(result.marks, lab.tests, strict=True):
        if mark.max_points != cell.max_score or not 0 <= mark.points <= mark.max_points:  # NaN fails both comparisons
            raise LabkitError(
                f"{result.student}: {mark.points:g} of {mark.max_points:g} points for {mark.name}, which has "
                f"{cell.max_score:g}; grade the submission again"
            )
    scores: dict[str, float | None] = {mark.name: mark.points for mark in result.marks}
    is_empty = all(cell.is_missing for cell in submission)
    for each in submission:
        if each.registered and each.registered.kind == "manual":
            scores[each.registered.name] = 0.0 if is_empty or each.is_untouched else None
    return scores


def _moment(timestamp: str, result: Result) -> datetime | None:
    try:
        return parse_utc(timestamp.strip()) if timestamp.strip() else None
    except (ValueError, OverflowError):
        raise LabkitError(
            f"{result.student}/{result.lab}/timestamp.txt: {timestamp.strip()[:80]!r} is no time; "
            "write it as 2030-01-31 23:59:00 UTC"
        ) from None
