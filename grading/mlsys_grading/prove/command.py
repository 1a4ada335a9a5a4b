"""``labkit prove``: check that solutions get full marks, stubs get none, and every wrong answer loses marks."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

from mlsys_grading.arguments import add_labs, root_of
from mlsys_grading.time_limits import PROVED_CELL_SECONDS
from mlsys_labkit.errors import LabkitError


def add_parser(subparsers: Any) -> None:
    """Add the verb ``prove`` to ``labkit``."""
    parser = subparsers.add_parser(
        "prove", help="check that tests accept solutions and catch wrong answers", description=__doc__
    )
    add_labs(parser)
    parser.add_argument("--jobs", type=int, metavar="N", help="workers at a time; default: the cores that may be used")
    parser.add_argument(
        "--cell-seconds", type=float, default=PROVED_CELL_SECONDS, metavar="S", help="limit of one cell; default: 60"
    )
    parser.add_argument("--memory-gib", type=float, default=4.0, metavar="G", help="limit of one worker; default: 4")
    parser.add_argument("--verbose", action="store_true", help="print which check caught each wrong answer")
    parser.add_argument("--json", action="store_true", help="print the proofs as JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Prove, and return 0 (all proved) or 1 (problems, each printed with file and line)."""
    import json

    from mlsys_grading.lab import read_labs
    from mlsys_grading.prove.run import prove
    from mlsys_grading.prove.table import ProgressBar, details, rows
    from mlsys_labkit._base.limits import usable_cores

    if not hasattr(os, "fork"):
        raise LabkitError("proving forks processes, which this system cannot; use Linux, macOS or WSL")
    labs = read_labs(root_of(arguments), arguments.labs)
    jobs, memory_bytes = arguments.jobs or max(1, int(usable_cores())), int(arguments.memory_gib * 1024**3)
    progress = ProgressBar()
    try:
        proofs = prove(labs, jobs, arguments.cell_seconds, memory_bytes, progress)
    finally:
        progress.close()
    if arguments.json:
        print(json.dumps([proof.to_json() for proof in proofs], indent=2))
    else:
        for proof in proofs:
            print("\n".join(rows(proof)), end="\n\n")
        if arguments.verbose:
            print("\n".join(details(proofs)))
    problems = [problem for proof in proofs for problem in proof.problems]
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0
