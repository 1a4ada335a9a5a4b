"""The ledger: writes a result into the store, the gradebook, the graded notebook and the feedback, in that order.

It may be killed between any two of them: what is graded is kept, and writing it again changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from mlsys_grading.examine.files_beside import read_ordinary
from mlsys_grading.files import sweep_parts, write_files
from mlsys_grading.grade.store import FOLDER, Store
from mlsys_grading.gradebook.autograded import autograded_files
from mlsys_grading.gradebook.feedback import feedback_page
from mlsys_grading.gradebook.gradebook import Gradebook, RecordedMarks
from mlsys_grading.gradebook.grades_csv import write_grades
from mlsys_grading.gradebook.paths import SubmissionPaths
from mlsys_grading.gradebook.registered import RegisteredLab
from mlsys_grading.gradebook.submission import match
from mlsys_grading.result import Result

_OUT = ("autograded", "feedback")
_RECEIPT, _LONGEST_RECEIPT = ("timestamp.txt", "submission_secret.txt"), 1000  # bytes


@dataclass(frozen=True)
class WrittenResult:
    """The changes made by writing one result; ``score_before`` is None for a new submission."""

    recorded: RecordedMarks
    score_before: float | None
    score_after: float


@dataclass(frozen=True)
class Ledger:
    """The ledger of one lab in one course folder."""

    course: Path
    lab: RegisteredLab
    book: Gradebook
    store: Store
    jobs: Mapping[str, str] = field(default_factory=dict)
    """Student -> the job whose marks were in the gradebook when this began."""

    @classmethod
    def open(cls, course: Path, lab: RegisteredLab, book: Gradebook) -> Ledger:
        """Register the lab in the gradebook as it is now, and remove the partial files of a killed run."""
        for pattern in (f"{FOLDER}/*/{lab.name}", f"{FOLDER}/contracts", *(f"{name}/*/{lab.name}" for name in _OUT)):
            sweep_parts(course.glob(pattern))
        book.register(lab)
        return cls(course, lab, book, Store(course), book.jobs(lab.name))

    def known(self, student: str, job: str) -> Result | None:
        """Return the result of a job that has been graded already, or None."""
        kept = self.store.result(self.lab.name, student)
        return kept if kept and kept.job == job and kept.status == "graded" else None

    def is_written(self, result: Result, timestamp: str) -> bool:
        """Return True if everything that ``write`` would write exists already."""
        paths = SubmissionPaths.of(self.course, result.student, result.lab)
        return (
            self.jobs.get(result.student) == result.job
            and self.store.is_written(result, timestamp)
            and paths.notebook.is_file()
            and paths.page.is_file()
            and all(_read(kept) == text for kept, text in _receipt(paths).items())
        )

    def write(self, result: Result, cells: Sequence[Mapping[str, Any]], timestamp: str) -> WrittenResult:
        """Write a graded result out; ``cells`` are the submission's."""
        hidden = {cell.name for cell in self.lab.cells if cell.hidden}
        result = replace(result, marks=tuple(replace(mark, hidden=mark.name in hidden) for mark in result.marks))
        self.store.put(result)
        paths = SubmissionPaths.of(self.course, result.student, result.lab)
        receipt = _receipt(paths)
        submission = match(self.lab, {"cells": cells})
        before = self.book.standing(self.lab, result.student) if result.student in self.jobs else None
        recorded = self.book.record(self.lab, submission, result, timestamp)
        standing = self.book.standing(self.lab, result.student)
        assert recorded is not None  # since the result is graded
        assert standing is not None
        files: dict[Path, str | bytes] = {**autograded_files(paths.notebook, self.lab, submission, result, timestamp)}
        files[paths.page] = feedback_page(self.lab, submission, result, standing)
        files |= receipt
        files |= self.store.written_note(result, timestamp)
        write_files(files)
        return WrittenResult(recorded, before.score if before else None, standing.score)

    def write_grades(self) -> None:
        """Write ``grades/LAB.csv`` from the gradebook."""
        write_grades(self.course, self.lab, self.book, partial(self.store.result, self.lab.name))


def _receipt(paths: SubmissionPaths) -> dict[Path, bytes]:
    """Return the files by which ``nbgrader release_feedback`` lets only the student fetch the page."""
    found = {paths.page.with_name(name): _read(paths.submitted / name) for name in _RECEIPT}
    return {path: text for path, text in found.items() if text is not None}


def _read(path: Path) -> bytes | None:
    return read_ordinary(path, _LONGEST_RECEIPT)
