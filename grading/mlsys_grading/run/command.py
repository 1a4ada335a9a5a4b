"""``labkit run``: the arguments. What they do is imported when the verb runs, so that ``labkit --help`` stays quick."""

from __future__ import annotations

import argparse
from pathlib import Path

from mlsys_grading.arguments import add_labs, need
from mlsys_labkit._base.arguments import count


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb ``run`` to ``labkit``."""
    parser = verbs.add_parser(
        "run",
        help="execute every lab's solution and write a report",
        description="Execute the labs' solutions in parallel and write a report: pages, JUnit XML and JSON. "
        "Exit code 1: a notebook failed; 2: the run could not start; 130: Ctrl-C, with a report so far.",
    )
    add_labs(parser)
    parser.add_argument(
        "--jobs", type=count, metavar="N", help="notebooks at the same time (default: all allowed cores)"
    )
    parser.add_argument("--smoke", action="store_true", help="use small sizes, so that every cell runs in seconds")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="the labs' seed parameter (default: 0)")
    parser.add_argument(
        "--timeout-cell", type=_seconds, default=300.0, metavar="S", help="time limit of a cell (default: 300)"
    )
    parser.add_argument(
        "--timeout-notebook", type=_seconds, default=900.0, metavar="S", help="time limit of a notebook (default: 900)"
    )
    parser.add_argument(
        "--resume", action="store_true", help="skip notebooks that passed in the last report and have not changed"
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="where the report goes (default: build/report)")
    parser.add_argument(
        "--notebooks", type=Path, metavar="DIR", help="execute the notebooks in DIR instead of the labs"
    )
    parser.add_argument(
        "--no-roofline", action="store_true", help="do not measure this machine's roofline for the report"
    )
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    need("IPython", "jupytext", "latex2mathml", "nbclient", "nbconvert", "nbformat", "papermill", "psutil")
    from mlsys_grading.run.verb import run_verb

    return run_verb(arguments)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a number of seconds above 0, got {text!r}")
    return seconds
