"""``labkit grade``: the arguments. What they do is imported only when the verb runs."""

from __future__ import annotations

import argparse

from mlsys_grading.arguments import add_course, need
from mlsys_labkit._base.arguments import count
from mlsys_labkit.errors import LabkitError


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb ``grade`` to ``labkit``."""
    parser = verbs.add_parser(
        "grade",
        help="grade the submissions of an nbgrader course in a sandbox",
        description="Grade submitted/STUDENT/LAB/LAB.ipynb of an nbgrader course folder by source/LAB/LAB.ipynb into "
        "gradebook.db, autograded/, feedback/ and grades/LAB.csv. Only changed submissions are graded again. Exit "
        "code 1: a submission was set apart, or a lab was refused; 2: nothing could be graded; 130: Ctrl-C, after "
        "which the results so far are kept.",
    )
    _add_arguments(parser)
    parser.add_argument("--force", action="store_true", help="also grade submissions that have not changed")
    parser.set_defaults(run=_run)


def add_regrade_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb ``regrade`` to ``labkit``."""
    parser = verbs.add_parser(
        "regrade",
        help="grade again, also what has not changed, and list the marks that changed",
        description="Grade submissions again, and write the difference by student and task to regraded/LAB-TIME.csv "
        "and .json in the course folder. People's marks and comments stay. Exit codes as of grade.",
    )
    _add_arguments(parser)
    parser.add_argument("--changed-only", action="store_true", help="only submissions that have changed, as grade does")
    parser.set_defaults(run=_run)


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("labs", nargs="*", metavar="LAB", help="full names or unique beginnings such as lab01")
    parser.add_argument("--all", action="store_true", help="all labs that have submissions and a source")
    parser.add_argument("--student", nargs="+", metavar="ID", help="only these students' submissions")
    parser.add_argument(
        "--jobs", type=count, metavar="N", help="submissions at the same time (default: all allowed cores)"
    )
    add_course(parser)
    parser.add_argument(
        "--engine",
        default="local",
        metavar="ENGINE",
        help="local (default), dask:ADDRESS of a dask scheduler, or a settings file such as grading/engines/slurm.toml",
    )
    parser.add_argument(
        "--limit",
        action="append",
        type=_limit,
        metavar="NAME=VALUE",
        help="a limit for this run instead of the one in the lab's notebook: memory_gib, scratch_mib, file_gib, "
        "processes, call_seconds, cell_seconds, wall_seconds, gpu, timing",
    )
    parser.add_argument(
        "--no-sandbox", action="store_true", help="run students' code with all your rights; the gradebook notes it"
    )


def _run(arguments: argparse.Namespace) -> int:
    if bool(arguments.labs) == arguments.all:
        raise LabkitError("say which labs to grade: labkit grade LAB [LAB...], or labkit grade --all")
    if "changed_only" in arguments:
        arguments.force = not arguments.changed_only
    need("IPython", "jupytext", "msgpack", "nbformat", "nbgrader", "psutil", "torch")
    from mlsys_grading.grade.verb import grade_verb

    return grade_verb(arguments)


def _limit(text: str) -> tuple[str, float | bool]:
    name, _, value = text.partition("=")
    try:
        return name, {"true": True, "false": False}[value] if value in ("true", "false") else float(value)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"expected NAME=VALUE, such as cell_seconds=60 or gpu=true, got {text!r}"
        ) from None
