"""Marks into a platform's own file: who changes, from what to what, before anything is written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mlsys_grading.gradebook.scores import Question, Score
from mlsys_grading.gradebook.sheet import Sheet, guarded, number
from mlsys_labkit.errors import LabkitError

Roster = Mapping[str, Mapping[str, str]]


@dataclass(frozen=True)
class CellChange:
    """One cell that differs from what the platform's file had."""

    student: str
    column: str
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.student}: {self.column}: {_shown(self.before)} -> {_shown(self.after)}"


@dataclass(frozen=True)
class MarksFile:
    """A file ready to be uploaded, and what it would change; nothing is written before :meth:`write`.

    Attributes:
        unmatched: students with marks whom the file does not know.
        unmarked: people in the file without a mark; their cells stay as they were.
        kept: cells that a person locked in the platform (excused, not assigned) and that stay.
        notes: what else to look at.
    """

    sheet: Sheet
    changes: tuple[CellChange, ...]
    unmatched: tuple[str, ...] = ()
    unmarked: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Write the dry run: one line for each change."""
        return "\n".join(self.lines())

    def lines(self, each_change: bool = True) -> list[str]:
        """List the changes, or without ``each_change`` only their number, and the warnings."""
        students = len({change.student for change in self.changes})
        lines = [f"{len(self.changes)} cells of {students} students change" if self.changes else "nothing changes"]
        lines += [f"  {change}" for change in self.changes if each_change]
        for what, names in (
            ("not in the file", self.unmatched),
            ("no mark", self.unmarked),
            ("kept", self.kept),
            ("note", self.notes),
        ):
            lines += [f"  {what}: {name}" for name in names]
        return lines

    def write(self, path: Path) -> bool:
        """Write the file; False if it holds the same already."""
        return self.sheet.write(path)


def read_roster(path: Path) -> dict[str, dict[str, str]]:
    """Read a CSV with a column ``student`` (the folder in ``submitted/``) and columns named as the platform's.

    Raises LabkitError for a file without that column, and for a student who stands there twice.
    """
    sheet = Sheet.read(path)
    at = sheet.column("student")
    if at is None:
        raise LabkitError(f"{path}: no column 'student'; have {', '.join(sheet.header)}")
    roster: dict[str, dict[str, str]] = {}
    for row in sheet.rows:
        if row[at] in roster:
            raise LabkitError(f"{path}: the student {row[at]} stands there twice; remove one row")
        roster[row[at]] = {title.strip(): cell.strip() for title, cell in zip(sheet.header, row, strict=True) if cell}
    return roster


def columns_of(score: Score, per_question: bool) -> dict[str, Question]:
    """Return what one submission puts into the file, by title: a single entry for the lab, or one for each task."""
    if per_question:
        return {f"{score.lab}: {question.name}": question for question in score.questions}
    return {score.lab: Question(score.lab, score.points, score.max_points, score.feedback)}


def place(
    sheet: Sheet,
    first: int,
    scores: Sequence[Score],
    roster: Roster,
    keys: Sequence[str],
    *,
    added: Callable[[str], Mapping[str, str]] | None,
) -> tuple[Sheet, dict[str, int], tuple[str, ...]]:
    """Find the row of each student from row ``first``; return the rows, and the students without one.

    ``added`` returns the cells of a new row for a student whom the file lacks; None adds no rows.
    """
    students = dict.fromkeys(score.student for score in scores)
    found = _locate(sheet, first, students, roster, keys)
    unmatched = tuple(student for student in students if student not in found)
    if added is None:
        return sheet, found, unmatched
    rows = list(sheet.rows)
    for student in sorted(unmatched):
        cells = added(student)
        found[student] = len(rows)
        rows.append(tuple(guarded(cells.get(title, "")) for title in sheet.header))
    return replace(sheet, rows=tuple(rows)), found, ()


def _locate(sheet: Sheet, first: int, students: Iterable[str], roster: Roster, keys: Sequence[str]) -> dict[str, int]:
    """Find the rows of the students whom the file has.

    A student of the roster is found by the columns that roster and file share; another by a cell that is the
    student's name. Raises LabkitError where that is not exactly one row for one student.
    """
    places = {key: at for key in keys if (at := sheet.column(key)) is not None}
    index: dict[tuple[str, str], list[int]] = {}
    for at, row in enumerate(sheet.rows[first:], first):
        for key, column in places.items():
            if row[column].strip():
                index.setdefault((key, row[column].strip().casefold()), []).append(at)
    found: dict[str, int] = {}
    owner: dict[int, str] = {}
    for student in students:
        wanted = roster.get(student) or dict.fromkeys(keys, student)
        hits = [(key, index.get((key, wanted[key].casefold()), [])) for key in places if wanted.get(key)]
        rows = {row for _, some in hits for row in some}
        if len(rows) > 1:
            where = ", ".join(f"{key} {wanted[key]!r}" for key, some in hits if some)
            raise LabkitError(f"{student} fits {len(rows)} rows of the file by {where}; say which in the roster")
        for at in rows:
            if (other := owner.setdefault(at, student)) != student:
                raise LabkitError(f"{other} and {student} are one row of the file; mend the roster")
            found[student] = at
    return found


def fill(
    sheet: Sheet,
    rows: Mapping[str, int],
    values: Mapping[str, Mapping[int, str]],
    is_kept: Callable[[Sequence[str], int], bool],
) -> tuple[Sheet, tuple[CellChange, ...], tuple[str, ...]]:
    """Write ``values`` (student -> column -> text) into their rows; cells with an equal value stay untouched."""
    grid = [list(row) for row in sheet.rows]
    changes, kept = [], []
    for student, at in sorted(rows.items(), key=lambda item: item[1]):
        for column, text in values[student].items():
            before, after, title = grid[at][column], guarded(text), sheet.header[column]
            if _same(before, after):
                continue
            if is_kept(grid[at], column):
                kept.append(f"{student}: {title}: stays {before}, the mark would be {text}")
                continue
            grid[at][column] = after
            changes.append(CellChange(student, title, before, after))
    return replace(sheet, rows=tuple(map(tuple, grid))), tuple(changes), tuple(kept)


def _same(before: str, after: str) -> bool:
    old, new = number(before), number(after)
    # Two decimals are all that platforms show and export.
    return round(old, 2) == round(new, 2) if old is not None and new is not None else before.strip() == after.strip()


def _shown(text: str) -> str:
    text = text.strip() or "(empty)"
    return text if len(text) <= 60 else f"{text[:57]}..."
