"""One graded lab of a course folder: the marks for exports and reports, and the students who have no mark yet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import mlsys_grading
from mlsys_grading.examine.notebook import UnreadableError
from mlsys_grading.grade.course import CourseFolder, HandedIn, LabSource
from mlsys_grading.grade.store import Store
from mlsys_grading.gradebook.counted_scores import Standing
from mlsys_grading.gradebook.course import course_settings
from mlsys_grading.gradebook.gradebook import Gradebook
from mlsys_grading.gradebook.grades_csv import scores_of
from mlsys_grading.gradebook.registered import register
from mlsys_grading.gradebook.scores import Score
from mlsys_grading.lab import Cell, Lab, WrongAnswer, find_root, lab_names, read_lab
from mlsys_grading.result import Result
from mlsys_labkit.errors import LabkitError


@dataclass(frozen=True)
class GradedLab:
    """One lab of a graded course.

    Attributes:
        source: the instructor's notebook that was graded against.
        lab: the same as a ``Lab``, with the wrong answers of the checkout that has them; none without one.
        results: student -> result, by name; what failed for the machine's fault is not among them.
        unmarked: students who handed in and have no mark.
    """

    course: Path
    source: LabSource
    lab: Lab
    results: Mapping[str, Result]
    unmarked: tuple[str, ...]

    @classmethod
    def read(cls, course: Path, name: str, root: Path | None = None) -> GradedLab:
        """Read the lab that ``name`` begins. Raises LabkitError if there is none, or none of it is graded.

        Args:
            root: the checkout that has the lab's wrong answers; by default the one around the course, around here, or
                around the graders.
        """
        folder = CourseFolder.at(course)
        (full,) = folder.labs([name], every=False)
        source = folder.source(full)
        handed_in = [each.student for each in folder.handed_in(full)]
        store = Store(course)
        found = {student: result for student in handed_in if (result := store.result(full, student))}
        results = {student: result for student, result in found.items() if result.status == "graded"}
        if not results:
            raise LabkitError(f"nothing of {full} is graded in {course}; run: labkit grade {full} --course {course}")
        unmarked = tuple(student for student in handed_in if student not in results)
        return cls(course, source, _lab(course, source, _wrong_answers(full, course, root)), results, unmarked)

    def cells(self, student: str) -> list[dict[str, Any]]:
        """Read the cells of a submission; none of one that has become unreadable since it was graded."""
        folder = self.course / "submitted" / student / self.lab.name
        try:
            return HandedIn(student, self.lab.name, folder).cells()
        except UnreadableError:
            return []

    @cached_property
    def submissions(self) -> Mapping[str, list[dict[str, Any]]]:
        """Student -> cells, of those who have a mark."""
        return {student: self.cells(student) for student in self.results}

    def standing(self, student: str) -> Standing | None:
        """Return the marks of one student that count in the gradebook, people's marks and late penalties included."""
        registered = register(self.lab.name, self.source.notebook)
        with self._book() as book:
            return book.standing(registered, student)

    def scores(self) -> tuple[list[Score], list[str]]:
        """Return each student's score in the gradebook, and notes to read before it is handed over.

        Raises LabkitError if there is no gradebook, it has another state of the lab, or no mark of it.
        """
        registered = register(self.lab.name, self.source.notebook)
        with self._book() as book:
            scores, notes = scores_of(book, registered, partial(Store(self.course).result, self.lab.name))
        there = {score.student for score in scores}
        lost = [
            f"{student}: graded and not in the gradebook; grade it again"
            for student in self.results
            if student not in there
        ]
        notes += [*lost, *(f"{student}: handed in and has no mark; labkit grade says why" for student in self.unmarked)]
        if not scores:
            raise LabkitError(f"no mark of {self.lab.name} is in the gradebook; run: labkit grade {self.lab.name}")
        return scores, notes

    def _book(self) -> Gradebook:
        path = self.course / "gradebook.db"
        if not path.is_file():  # opening it would create the file
            raise LabkitError(f"there is no {path}; run: labkit grade {self.lab.name} --course {self.course}")
        settings = course_settings(self.course)
        return Gradebook(path, settings.course, settings.late)


def labs_of(course: Path, student: str) -> list[str]:
    """List the graded labs that this student handed in. Raises LabkitError if there is none."""
    folder = CourseFolder.at(course)
    labs = folder.labs([], every=True)
    there = {lab: {each.student for each in folder.handed_in(lab)} for lab in labs}
    mine = [lab for lab, students in there.items() if student in students]
    if not mine:
        known = sorted({each for students in there.values() for each in students})
        shown = ", ".join(known[:8]) + (f" and {len(known) - 8} more" if len(known) > 8 else "")
        raise LabkitError(f"there is no student {student!r} in {course / 'submitted'}; there are: {shown}")
    store = Store(course)
    marked = [lab for lab in mine if store.result(lab, student)]
    if not marked:
        raise LabkitError(f"nothing of {student} is graded; run: labkit grade {mine[0]} --course {course}")
    return marked


def _lab(course: Path, source: LabSource, wrong: tuple[WrongAnswer, ...]) -> Lab:
    """Return the instructor's notebook as a ``Lab``."""
    cells = (Cell(at, cell["cell_type"], cell["source"], 1, cell["metadata"]) for at, cell in enumerate(source.cells))
    return Lab(course, source.lab, tuple(cells), wrong, source.notebook.get("metadata") or {})


def _wrong_answers(name: str, course: Path, root: Path | None) -> tuple[WrongAnswer, ...]:
    """Read the wrong answers from the checkout that is named; else from one around the course, here or the graders."""
    for start in [root] if root else [course, Path.cwd(), Path(mlsys_grading.__file__)]:
        try:
            checkout = find_root(start)
        except LabkitError:
            if root:
                raise
            continue
        if name in lab_names(checkout):
            return read_lab(checkout, name).wrong_answers
        if root:
            raise LabkitError(f"{checkout} has no lab {name}; its labs are: {', '.join(lab_names(checkout))}")
    return ()
