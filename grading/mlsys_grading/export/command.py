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
        help="write a lab's marks to a CSV file, also for Canvas or Moodle",
        description="Write a lab's marks in the gradebook to a CSV file. They include marks that people gave, and late "
        "penalties. With --into, fill in a file that the platform exported; its other cells stay as they are.",
    )
    parser.add_argument("format", choices=("csv", "canvas", "moodle"))
    add_lab(parser)
    parser.add_argument("--into", type=Path, metavar="FILE", help="the file that Canvas or Moodle exported")
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="default: COURSE/grades/LAB.csv, LAB-canvas.csv, LAB-moodle.csv"
    )
    parser.add_argument("--dry-run", action="store_true", help="print what would change, and write nothing")
    parser.add_argument(
        "--roster",
        type=Path,
        metavar="FILE",
        help="a CSV file with the column 'student' and columns with the platform's names",
    )
    parser.add_argument(
        "--per-question", action="store_true", help="write a column for each task instead of one for the lab"
    )
    parser.add_argument(
        "--title",
        action="append",
        default=[],
        metavar="LAB=NAME",
        help="the platform's name or number of LAB, or of 'LAB: TASK'",
    )
    parser.add_argument("--scale", action="store_true", help="scale the marks to Canvas's points possible")
    parser.add_argument(
        "--add-students", action="store_true", help="add a row for each student who is not in the platform's file"
    )
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
