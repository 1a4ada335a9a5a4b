"""Arguments of ``labkit explain``, ``report`` and ``similarity``; their work is imported when one runs."""

from __future__ import annotations

import argparse
from pathlib import Path
from types import ModuleType
from typing import Any

from mlsys_grading.arguments import GRADED_COURSE_MODULES, add_course, add_lab, count, need


def add_explain_parser(verbs: Any) -> None:
    """Add the verb ``explain`` to ``labkit``."""
    parser = verbs.add_parser(
        "explain",
        help="say what became of one student's task, and why",
        description="Say what was asked and written, what each test came to and why, and which of the lab's wrong "
        "answers it is like. For instructors: it quotes hidden tests.",
    )
    parser.add_argument("student", metavar="STUDENT")
    parser.add_argument("task", metavar="TASK", help="the task's name, or one of its tests'")
    parser.add_argument("--lab", metavar="LAB", help="where two labs have a task of that name")
    add_course(parser)
    _add_wrong_answers(parser)
    parser.set_defaults(run=lambda arguments: _verbs().explain_verb(arguments))


def add_report_parser(verbs: Any) -> None:
    """Add the verb ``report`` to ``labkit``."""
    parser = verbs.add_parser(
        "report",
        help="sum up how a class did at a lab",
        description="Write a page on how a class did: marks, the hardest tasks, what failed and why, and the wrong "
        "answers that many gave. No student's name is in it. The first time, the lab's wrong answers are graded.",
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
        help="find answers that are alike: a reason to talk, no verdict",
        description="Compare what students wrote with each other, without what the lab gave: names, comments, layout "
        "and order make no difference, and code that many write counts little. Writes a page with the pairs side by "
        "side, and a CSV file. It is a reason to talk to people, and no verdict.",
    )
    add_lab(parser)
    parser.add_argument(
        "--share", type=_percent, default=85.0, metavar="PERCENT", help="of an answer, to stand out (default: 85)"
    )
    parser.add_argument("--bits", type=float, default=60.0, metavar="N", help="of surprise, to stand out (default: 60)")
    parser.add_argument("--out", type=Path, metavar="DIR", help="where the files go; default: COURSE/report/LAB")
    add_course(parser)
    parser.set_defaults(run=lambda arguments: _verbs().similarity_verb(arguments))


def _add_wrong_answers(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--root", type=Path, metavar="DIR", help="the checkout that has the labs' wrong answers")
    parser.add_argument("--jobs", type=count, metavar="N", help="wrong answers graded at once (default: our cores)")
    parser.add_argument(
        "--code-only", action="store_true", help="compare code with the wrong answers', and grade none of them"
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
