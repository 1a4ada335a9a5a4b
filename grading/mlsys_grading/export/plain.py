"""Marks as plain CSV: ``grades/LAB.csv`` once more, and what changes in a file written earlier."""

from __future__ import annotations

from collections.abc import Sequence

from mlsys_grading.export.merge import CellChange, MarksFile
from mlsys_grading.gradebook.grades_csv import grades_sheet
from mlsys_grading.gradebook.scores import Score
from mlsys_grading.gradebook.sheet import Sheet


def to_plain(scores: Sequence[Score], before: Sheet | None = None) -> MarksFile:
    """Make a row for each student and a column for each task, and compare them with the file written ``before``."""
    sheet, notes = grades_sheet(scores)
    known = {} if before is None else {row[0]: dict(zip(before.header, row, strict=True)) for row in before.rows}
    changes = []
    for row in sheet.rows:
        if row[0] not in known:
            changes.append(CellChange(row[0], "score", "", row[1]))
            continue
        old = known.pop(row[0])
        pairs = zip(sheet.header[1:], row[1:], strict=True)
        changes += [
            CellChange(row[0], title, old.get(title, ""), cell) for title, cell in pairs if old.get(title) != cell
        ]
    gone = [f"{student} has no mark any more; the row goes" for student in known]
    return MarksFile(sheet, tuple(changes), notes=(*notes, *gone))
