"""Feedback and graded notebooks written again from known results, after people have given marks."""

from __future__ import annotations

from pathlib import Path

from mlsys_grading.examine.notebook import UnreadableError
from mlsys_grading.grade.course import CourseFolder
from mlsys_grading.grade.ledger import Ledger
from mlsys_grading.gradebook.course import course_settings
from mlsys_grading.gradebook.gradebook import Gradebook
from mlsys_grading.gradebook.registered import register


def rewrite(root: Path, lab: str, student: str = "") -> int:
    """Write the known results of one student or of all; nothing is executed. Returns the number of results.

    A submission that has not been graded, or not since it was handed in again, is left as it is.
    Raises LabkitError for a lab or a student that is not there.

    Example:
        >>> rewrite(Path("mlsys"), "lab01_linear_algebra")  # doctest: +SKIP
        120
    """
    course = CourseFolder.at(root)
    source = course.source(lab)
    settings = course_settings(root)
    count = 0
    with Gradebook(root / "gradebook.db", settings.course, settings.late) as book:
        ledger = Ledger.open(root, register(lab, source.notebook), book)
        for each in course.handed_in(lab, [student] if student else []):
            known = ledger.store.result(lab, each.student)
            try:
                if known is None or not ledger.is_written(known, timestamp := each.timestamp()):
                    continue
                ledger.write(known, each.cells(), timestamp)
            except UnreadableError:
                continue
            count += 1
        ledger.write_grades()
    return count
