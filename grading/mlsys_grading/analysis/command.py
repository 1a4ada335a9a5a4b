"""Arguments of ``labkit explain``, ``report`` and ``similarity``; their work is imported when one runs."""

from __future__ import annotations

import argparse
from pathlib import Path
from types import ModuleType
from typing import Any

from mlsys_grading.arguments import GRADED_COURSE_MODULES, add_course, add_lab, need
from mlsys_labkit._base.arguments import count


def add_explain_parser(verbs: Any) -> None:
    """Add the verb ``explain`` to ``labkit``."""
    parser = verbs.add_parser(
        "explain",
        help="print the results of one student's task, with reasons",
        description="Print the task, the student's answer, the result of each test with its reason, and the most "
        "similar of the lab's wrong answers. For instructors: the output quotes hidden tests.",
    )
    parser.add_argument("student", metavar="STUDENT")
    parser.add_argument("task", metavar="TASK", help="the name of the task or of one of its tests")
    parser.add_argument("--lab", metavar="LAB", help="the lab, if two labs have a task of that name")
    parser.add_argument("--page", type=Path, metavar="FILE", help="also write it to this file as a page")
    add_course(parser)
    _add_wrong_answers(parser)
    parser.set_defaults(run=lambda arguments: _verbs().explain_verb(arguments))


def add_report_parser(verbs: Any) -> None:
    """Add the verb ``report`` to ``labkit``."""
    parser = verbs.add_parser(
        "report",
        help="write a page about a class's results in a lab",
        description="Write a page about a class's results in a lab: marks, the hardest tasks, which tests failed and "
        "why, and the most frequent wrong answers. It names no student. The first run also grades the wrong answers.",
    )
    add_lab(parser)
    parser.add_argument("--out", type=Path, metavar="DIR", help="where the page goes; default: COURSE/report/LAB")
    add_course(parser)
    _add_wrong_answers(parser)
    parser.set_defaults(run=lambda arguments: _verbs().report_verb(arguments))


def add_similarity_parser(verbs: Any) -> None:
    """Add the verb ``similarity`` to ``labkit``."""
    parser = verbs.add_parser(
        "similarity",
        help="find answers that resemble each other",
        description="Compare students' answers with each other, without the code that the lab gave. Names, comments, "
        "layout and order make no difference, and code that many students wrote counts little. Write a page with the "
        "pairs side by side, and a CSV file. A match is a reason to talk to the students; it proves nothing.",
    )
    add_lab(parser)
    parser.add_argument(
        "--share",
        type=_percent,
        default=85.0,
        metavar="PERCENT",
        help="list pairs that share at least this part of an answer (default: 85)",
    )
    parser.add_argument(
        "--bits",
        type=float,
        default=60.0,
        metavar="N",
        help="list pairs that share at least this much rare code, in bits (default: 60)",
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="where the files go; default: COURSE/report/LAB")
    add_course(parser)
    parser.set_defaults(run=lambda arguments: _verbs().similarity_verb(arguments))


def _add_wrong_answers(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--root", type=Path, metavar="DIR", help="the checkout that has the labs' wrong answers")
    parser.add_argument(
        "--jobs", type=count, metavar="N", help="wrong answers graded at the same time (default: all allowed cores)"
    )
    parser.add_argument(
        "--code-only", action="store_true", help="compare with the code of the wrong answers, without grading them"
    )


def _verbs() -> ModuleType:
    need(*GRADED_COURSE_MODULES)
    from mlsys_grading.analysis import verbs

    return verbs


def _percent(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 100:
        raise argparse.ArgumentTypeError(f"expected a number from 0 to 100, got {text!r}")
    return value
