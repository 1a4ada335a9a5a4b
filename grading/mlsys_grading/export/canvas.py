"""Marks for Canvas: its gradebook's CSV, as it exports and imports it.

Canvas matches people by ID, else by SIS ID and login, and assignments by the number in brackets behind their titles;
it compares scores at two decimals, and would change an assignment whose points possible differ in the file.
Reference: https://community.canvaslms.com/t5/Instructor-Guide/How-do-I-import-grades-in-the-Gradebook/ta-p/807
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from mlsys_grading.export.merge import MarksFile, Roster, columns_of, fill, place
from mlsys_grading.gradebook.scores import Score
from mlsys_grading.gradebook.sheet import Sheet, guarded, number, points_text
from mlsys_labkit.errors import LabkitError

KEYS = ("ID", "SIS User ID", "SIS Login ID")
_PEOPLE = ("Student", "ID", "SIS User ID", "SIS Login ID", "Section")
_NAMES = ("Student", "LastName", "FirstName")
_WITH_ID = re.compile(r"(.*) \((\d+)\)", re.DOTALL)
_TOTAL = re.compile(
    "Current Score|Current Points|Current Grade|Final Score|Final Points|Final Grade|Override Score|Override Grade"
    "|Override Status"
)


def to_canvas(
    scores: Sequence[Score],
    export: Sheet | None = None,
    roster: Roster | None = None,
    *,
    titles: Mapping[str, str] | None = None,
    per_question: bool = False,
    scale: bool = False,
    add_students: bool = False,
) -> MarksFile:
    """Put marks into Canvas's own export, or into the file handed over before, and list the changes.

    Args:
        export: what Canvas exported, or the file made last time; without it a new file is made from ``roster``.
        roster: student -> Canvas's column -> value, of ``merge.read_roster``.
        titles: "lab" or "lab: task" -> the assignment's title in Canvas, or its number.
        per_question: write a column for each task instead of one for the lab.
        scale: scale the marks to Canvas's points possible where they differ.
        add_students: give a row to those whom the file lacks.

    All other columns, rows and cells stay as they were, excused people's too. Raises LabkitError for a file that is no
    Canvas gradebook, one whose points possible differ from the lab's, and people who cannot be told apart.

    Example:
        >>> print(to_canvas([Score("ada", "lab00", 7.0, 10.0)], roster={"ada": {"Student": "Byron, Ada", "ID": "12"}}))
        1 cells of 1 students change
          ada: lab00: (empty) -> 7
          note: lab00: a new column, and in Canvas a new assignment of 10 points; or to fill one: --title 'lab00=NAME'
    """
    roster = roster or {}
    sheet = export or Sheet(_PEOPLE, (("    Points Possible", *[""] * (len(_PEOPLE) - 1)),))
    first = _first_student(sheet)
    added = (lambda student: _person(student, roster)) if add_students or export is None else None
    sheet, rows, unmatched = place(sheet, first, scores, roster, KEYS, added=added)
    wanted = _wanted(scores, per_question)
    sheet, columns, notes = _with_columns(sheet, first, wanted, titles or {})
    sheet, factors = _points_possible(sheet, first, wanted, columns, scale)
    values: dict[str, dict[int, str]] = defaultdict(dict)
    for score in scores:
        for key, mark in columns_of(score, per_question).items():
            values[score.student][columns[key]] = points_text(mark.points * factors[key])
    sheet, changes, kept = fill(sheet, rows, values, lambda row, at: row[at].strip().upper() in ("EX", "N/A"))
    sheet, odd = sheet.guard_columns(first, (*_NAMES, *KEYS))
    unmarked = [row[0] for at, row in enumerate(sheet.rows[first:], first) if at not in rows.values()]
    notes += [penalty for score in scores if per_question and (penalty := score.told_penalty)]
    return MarksFile(sheet, changes, unmatched, tuple(unmarked), kept, (*notes, *odd))


def _first_student(sheet: Sheet) -> int:
    """Return the first student's row, below points possible and perhaps posting policies."""
    if not {"Student", "LastName"} & set(sheet.header) or sheet.column("ID") is None:
        raise LabkitError("no Canvas gradebook: the header lacks Student and ID; export it from Canvas's Gradebook")
    for at, row in enumerate(sheet.rows[:5]):
        if "Points Possible" in row[0]:
            return at + 1
    raise LabkitError("no Canvas gradebook: there is no row 'Points Possible'; export it from Canvas's Gradebook")


def _person(student: str, roster: Roster) -> Mapping[str, str]:
    cells = {"Student": student} | dict(roster.get(student) or {"SIS Login ID": student})
    return {title: cells.get(title, "") for title in _PEOPLE}


def _wanted(scores: Sequence[Score], per_question: bool) -> dict[str, float]:
    """Return column -> maximum points, in the order of labs and tasks."""
    wanted: dict[str, float] = {}
    for score in sorted(scores, key=lambda each: each.lab):
        for key, mark in columns_of(score, per_question).items():
            if wanted.setdefault(key, mark.max_points) != mark.max_points:
                both = f"{points_text(wanted[key])} and of {points_text(mark.max_points)}"
                raise LabkitError(f"{key}: graded out of {both} points; regrade it")
    return wanted


def _with_columns(
    sheet: Sheet, first: int, wanted: Mapping[str, float], titles: Mapping[str, str]
) -> tuple[Sheet, dict[str, int], list[str]]:
    there = {key: _find(sheet, titles.get(key, key)) for key in wanted}
    new = [titles.get(key, key) for key, at in there.items() if at is None]
    for title in new:
        if _TOTAL.search(title) or title in _PEOPLE or title != guarded(title):
            raise LabkitError(f"Canvas would not take {title!r} for an assignment; name it otherwise with titles")
    totals = [at for at, title in enumerate(sheet.header) if _TOTAL.search(title)]
    sheet = sheet.insert(min(totals, default=len(sheet.header)), new)
    columns = {key: at for key in wanted if (at := _find(sheet, titles.get(key, key))) is not None}
    for key, at in columns.items():
        if "read only" in sheet.rows[first - 1][at]:
            raise LabkitError(f"{sheet.header[at]} is read only in Canvas; name another column for {key} with titles")
    notes = [
        f"{titles.get(key, key)}: a new column, and in Canvas a new assignment of {points_text(points)} points; "
        f"or to fill one: --title '{key}=NAME'"
        for key, points in wanted.items()
        if there[key] is None
    ]
    return sheet, columns, notes


def _find(sheet: Sheet, title: str) -> int | None:
    if (exact := sheet.column(title)) is not None:
        return exact
    named = [(at, found) for at, each in enumerate(sheet.header) if (found := _WITH_ID.fullmatch(each.strip()))]
    places = [at for at, found in named if title in (found[1], found[2])]
    if len(places) > 1:
        raise LabkitError(
            f"{title!r} is the title of {len(places)} assignments: {', '.join(sheet.header[at] for at in places)}; "
            "name one by its number with titles"
        )
    return places[0] if places else None


def _points_possible(
    sheet: Sheet, first: int, wanted: Mapping[str, float], columns: Mapping[str, int], scale: bool
) -> tuple[Sheet, dict[str, float]]:
    row, factors = list(sheet.rows[first - 1]), dict.fromkeys(wanted, 1.0)
    for key, most in wanted.items():
        there = number(row[columns[key]])
        if there is None:
            row[columns[key]] = points_text(most)
        elif round(there, 2) != round(most, 2):
            if not scale or not most:
                raise LabkitError(
                    f"{sheet.header[columns[key]]}: {points_text(there)} points possible in Canvas, "
                    f"{points_text(most)} in the lab; change it in Canvas, or scale the marks"
                )
            factors[key] = there / most
    return replace(sheet, rows=(*sheet.rows[: first - 1], tuple(row), *sheet.rows[first:])), factors
