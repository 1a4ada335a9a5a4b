"""Arguments of ``labkit export``; its work is imported when it runs."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from mlsys_grading.arguments import GRADED_COURSE_MODULES, add_course, add_lab, need
from mlsys_labkit.errors import LabkitError


def add_export_parser(verbs: Any) -> None:
    """Add the verb ``export`` to ``labkit``."""
    parser = verbs.add_parser(
        "export",
        help="put a lab's marks into a CSV file, Canvas's or Moodle's own too",
        description="Put a lab's marks into a CSV file: those of the gradebook, marks by people and late penalties "
        "included. With --into, the platform's own export is filled, and its other cells stay as they are.",
    )
    parser.add_argument("format", choices=("csv", "canvas", "moodle"))
    add_lab(parser)
    parser.add_argument("--into", type=Path, metavar="FILE", help="what Canvas or Moodle exported")
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="default: COURSE/grades/LAB.csv, LAB-canvas.csv, LAB-moodle.csv"
    )
    parser.add_argument("--dry-run", action="store_true", help="say what would change, and write nothing")
    parser.add_argument(
        "--roster", type=Path, metavar="FILE", help="a CSV with the column 'student' and columns named as theirs"
    )
    parser.add_argument("--per-question", action="store_true", help="a column for each task instead of one for the lab")
    parser.add_argument(
        "--title",
        action="append",
        default=[],
        metavar="LAB=NAME",
        help="their name or number of LAB, or of 'LAB: TASK'",
    )
    parser.add_argument("--scale", action="store_true", help="let marks follow Canvas's points possible")
    parser.add_argument("--add-students", action="store_true", help="give a row to those whom their file lacks")
    add_course(parser)
    parser.set_defaults(run=_export)


def _export(arguments: argparse.Namespace) -> int:
    if arguments.format == "csv" and (arguments.into or arguments.roster or arguments.title or arguments.scale):
        raise LabkitError(
            "--into, --roster, --title and --scale are for canvas and moodle; leave them out, or say which"
        )
    if arguments.format == "moodle" and arguments.scale:
        raise LabkitError("--scale is for canvas; change the maximum grade in Moodle")
    need(*GRADED_COURSE_MODULES)
    from mlsys_grading.export.verb import export_verb

    return export_verb(arguments)
