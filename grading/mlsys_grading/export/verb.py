"""``labkit export``: from a graded course folder to a CSV file."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from functools import partial
from pathlib import Path

from mlsys_grading.export.canvas import to_canvas
from mlsys_grading.export.merge import MarksFile, read_roster
from mlsys_grading.export.moodle import to_moodle
from mlsys_grading.export.plain import to_plain
from mlsys_grading.grade.graded import GradedLab
from mlsys_grading.gradebook.grades_csv import GRADES
from mlsys_grading.gradebook.scores import Score
from mlsys_grading.gradebook.sheet import Sheet
from mlsys_grading.gradebook.text import printable
from mlsys_labkit.errors import LabkitError


def export_verb(arguments: Namespace) -> int:
    """Write marks into a CSV file, or print the changes that writing would make."""
    graded = GradedLab.read(arguments.course, arguments.lab)
    scores, notes = graded.scores()
    suffix = "" if arguments.format == "csv" else f"-{arguments.format}"
    out = arguments.out or arguments.course / GRADES / f"{graded.lab.name}{suffix}.csv"
    export = _filled(arguments, scores, out)
    told = [*export.lines(arguments.dry_run), *(f"  note: {note}" for note in notes)]
    if arguments.dry_run:
        print("\n".join([*map(printable, told), f"nothing was written; without --dry-run: {out}"]))
        return 0
    if arguments.into and out.exists() and out.samefile(arguments.into):
        raise LabkitError(f"{out} is their own export; keep it, and name another file with --out")
    written = export.write(out)
    print("\n".join([*map(printable, told), f"{out}: {'written' if written else 'unchanged'}"]))
    return 0


def _filled(arguments: Namespace, scores: list[Score], out: Path) -> MarksFile:
    if arguments.format == "csv":
        return to_plain(scores, Sheet.read(out) if out.is_file() else None)
    titles = dict(_title(text) for text in arguments.title)
    roster = read_roster(arguments.roster) if arguments.roster else None
    export = Sheet.read(arguments.into) if arguments.into else None
    canvas = partial(to_canvas, scale=arguments.scale)
    fill: Callable[..., MarksFile] = to_moodle if arguments.format == "moodle" else canvas
    per_question, add = arguments.per_question, arguments.add_students
    return fill(scores, export, roster, titles=titles, per_question=per_question, add_students=add)


def _title(text: str) -> tuple[str, str]:
    key, equals, title = text.partition("=")
    if not (key and equals and title):
        raise LabkitError(f"--title {text!r}: expected LAB=NAME or 'LAB: TASK=NAME'")
    return key, title
