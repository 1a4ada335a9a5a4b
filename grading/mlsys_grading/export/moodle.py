"""Marks for Moodle: its gradebook's CSV, or the grading worksheet of one assignment.

Importing feedback without a grade deletes the grade, so that both are always written together.
Reference: https://docs.moodle.org/en/Grade_import
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from mlsys_grading.export.merge import MarksFile, Roster, columns_of, fill, place
from mlsys_grading.gradebook.scores import Score
from mlsys_grading.gradebook.sheet import Sheet, number, points_text
from mlsys_labkit.errors import LabkitError

KEYS = ("ID number", "Email address", "Username")
_PEOPLE = ("First name", "Last name", "ID number", "Email address")
_NAMES = ("First name", "Last name", "Surname", "Full name")
_LAST = "Last downloaded from this course"


def to_moodle(
    scores: Sequence[Score],
    export: Sheet | None = None,
    roster: Roster | None = None,
    *,
    titles: Mapping[str, str] | None = None,
    per_question: bool = False,
    add_students: bool = False,
) -> MarksFile:
    """Put marks and feedback into Moodle's own export, a grading worksheet or the file made last time.

    Args:
        export: what Moodle exported; without it a new file is made from ``roster``.
        roster: student -> Moodle's column ("ID number", "Email address") -> value, of ``merge.read_roster``.
        titles: "lab" or "lab: task" -> the grade item's name in Moodle.
        per_question: a grade and a feedback column for each task instead of one for the lab.
        add_students: give a row to those whom the file lacks.

    Raises LabkitError for a file without a column that names people, a worksheet of another maximum or for several
    labs, and people who cannot be told apart.

    Example:
        >>> print(to_moodle([Score("ada", "lab00", 7.0, 10.0)], roster={"ada": {"Email address": "ada@uni.example"}}))
        1 cells of 1 students change
          ada: lab00 (Real): (empty) -> 7
          note: lab00: a new column; make the grade item in Moodle first, out of 10
    """
    roster = roster or {}
    sheet = export or Sheet(_PEOPLE)
    if not any(sheet.column(key) is not None for key in KEYS):
        raise LabkitError(f"no Moodle grades: the header has none of {', '.join(KEYS)}; export the grades again")
    added = (lambda student: _person(student, roster)) if add_students or export is None else None
    sheet, rows, unmatched = place(sheet, 0, scores, roster, KEYS, added=added)
    wanted = {key: mark.max_points for score in scores for key, mark in columns_of(score, per_question).items()}
    notes: list[str] = []
    if sheet.column("Identifier") is not None and sheet.column("Grade") is not None:
        columns = _worksheet(sheet, wanted)
    else:
        sheet, columns, notes = _with_columns(sheet, wanted, titles or {})
    values: dict[str, dict[int, str]] = defaultdict(dict)
    for score in scores:
        if score.student in rows:
            _check_maximum(sheet, rows[score.student], score)
        for key, mark in columns_of(score, per_question).items():
            grade, feedback = columns[key]
            values[score.student] |= {grade: points_text(mark.points), feedback: mark.feedback}
    locked = sheet.column("Grade can be changed")
    sheet, changes, kept = fill(sheet, rows, values, lambda row, _: locked is not None and row[locked].strip() == "No")
    sheet, odd = sheet.guard_columns(0, (*_NAMES, *KEYS))
    who = [column for name in (*_NAMES, *KEYS) if (column := sheet.column(name)) is not None]
    unmarked = [
        " ".join(row[column] for column in who if row[column])
        for at, row in enumerate(sheet.rows)
        if at not in rows.values()
    ]
    notes += [penalty for score in scores if per_question and (penalty := score.told_penalty)]
    return MarksFile(sheet, changes, unmatched, tuple(unmarked), kept, (*notes, *odd))


def _person(student: str, roster: Roster) -> Mapping[str, str]:
    cells = roster.get(student) or {"ID number": student}
    return {title: cells.get(title, "") for title in _PEOPLE}


def _with_columns(
    sheet: Sheet, wanted: Mapping[str, float], titles: Mapping[str, str]
) -> tuple[Sheet, dict[str, tuple[int, int]], list[str]]:
    notes = []
    for key, most in sorted(wanted.items(), key=lambda item: item[0].partition(": ")[0]):
        title = titles.get(key, key)
        end = sheet.column(_LAST)
        end = len(sheet.header) if end is None else end
        at = _find(sheet, title, "Real")
        if at is None:
            sheet = sheet.insert(end, [f"{title} (Real)", f"{title} (Feedback)"])
            notes.append(f"{title}: a new column; make the grade item in Moodle first, out of {points_text(most)}")
        elif _find(sheet, title, "Feedback") is None:
            sheet = sheet.insert(at + 1, [sheet.header[at].replace("(Real)", "(Feedback)")])
    places = {}
    for key in wanted:
        grade, feedback = (_find(sheet, titles.get(key, key), kind) for kind in ("Real", "Feedback"))
        assert grade is not None
        assert feedback is not None
        places[key] = grade, feedback
    return sheet, places, notes


def _find(sheet: Sheet, title: str, kind: str) -> int | None:
    """Find a column; Moodle puts the kind of activity before its name, and the kind of value behind it."""
    wanted = f"{title} ({kind})"
    found = [at for at, each in enumerate(sheet.header) if each.strip() == wanted or each.endswith(f": {wanted}")]
    exact = [at for at in found if sheet.header[at].strip() in (wanted, f"Assignment: {wanted}")]
    found = exact or found
    if len(found) > 1:
        raise LabkitError(f"{title!r} names {len(found)} columns; give the whole name with titles")
    return found[0] if found else None


def _worksheet(sheet: Sheet, wanted: Mapping[str, float]) -> dict[str, tuple[int, int]]:
    grade, feedback = sheet.column("Grade"), sheet.column("Feedback comments")
    if len(wanted) > 1 or grade is None or feedback is None:
        raise LabkitError(
            f"a grading worksheet is for one assignment with Grade and Feedback comments, not for {len(wanted)}; "
            "hand one lab over at a time, and switch feedback comments on in Moodle"
        )
    return dict.fromkeys(wanted, (grade, feedback))


def _check_maximum(sheet: Sheet, row: int, score: Score) -> None:
    at = sheet.column("Maximum Grade")
    there = number(sheet.rows[row][at]) if at is not None else None
    if there is not None and round(there, 2) != round(score.max_points, 2):
        raise LabkitError(
            f"{score.lab}: the maximum grade is {points_text(there)} in Moodle, {points_text(score.max_points)} in the "
            "lab; change it in Moodle"
        )
