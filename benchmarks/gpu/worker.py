"""Process that runs the cases of one step on request, one line of JSON for each. The campaign starts and ends it.

python -m benchmarks.gpu.worker MODULE [--stand-in]    then a case's name on each line of standard input
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
import traceback
from collections.abc import Mapping
from typing import IO, Any

from benchmarks.gpu.cases import ROOT, Case, NotMeasured, first_line


def outcome(case: Case) -> dict[str, Any]:
    """Run one case and return its figures; an error that it raises is its result."""
    began = time.monotonic()
    try:
        found: dict[str, Any] = {"ok": None, **case.run()}
    except NotMeasured as reason:
        found = {"ok": None, "not_measured": str(reason)}
    except (Exception, SystemExit) as error:
        frames = traceback.extract_tb(error.__traceback__)[-3:]
        at = [f"{os.path.relpath(frame.filename, ROOT)}:{frame.lineno} {frame.name}" for frame in reversed(frames)]
        found = {"ok": False, "error": first_line(error), "more": str(error).splitlines()[1:6], "at": at}
    return found | {"seconds": round(time.monotonic() - began, 3)}


def serve(cases: Mapping[str, Case], requests: IO[str], replies: IO[str]) -> None:
    """Reply with the names and limits of the cases, then with the outcome of each case that is requested."""
    limits = {name: {"seconds": case.seconds, "alone": case.alone} for name, case in cases.items()}
    print(json.dumps({"cases": limits}), file=replies, flush=True)
    for line in requests:
        print(json.dumps(outcome(cases[line.rstrip("\n")]), default=str), file=replies, flush=True)


def main() -> None:
    # What kernels and libraries print goes to standard error: standard output is the campaign's.
    replies, requests = os.fdopen(os.dup(1), "w"), os.fdopen(os.dup(0))
    os.dup2(2, 1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks"), str(ROOT / "grading")]
    if "--stand-in" in sys.argv:
        importlib.import_module("tests.cuda.stand_in_gpu").install()
    cases = importlib.import_module(sys.argv[1]).cases()
    serve({case.name: case for case in cases}, requests, replies)


if __name__ == "__main__":
    main()
