"""``python -m tests.grading.corpus.grader ARGUMENTS``: ``labkit``, then a list of the processes it left running."""

from __future__ import annotations

import ctypes
import sys

import psutil

from mlsys_labkit._frontends.cli import main

LEFT_RUNNING = "left running: "
_SUBREAPER = 36


def run(arguments: list[str]) -> int:
    """Run ``labkit``; return its exit code, and name on stderr the processes that outlive it."""
    ctypes.CDLL(None).prctl(_SUBREAPER, 1)  # this process adopts orphans, in place of the machine's first process
    code = main(arguments)
    _, left = psutil.wait_procs(psutil.Process().children(recursive=True), timeout=120)
    for process in left:
        print(LEFT_RUNNING, process, file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
