"""``python -m tests.grading.corpus [NAME...]``: examine the corpus, and print what each deserves and what it got.

With ``--door grade`` all of it is one class that ``labkit grade`` grades, submissions that are odd folders included.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from mlsys_grading.fork_server.client import ForkServer
from mlsys_grading.sandbox.confine import refusal
from tests.grading.corpus.door import Class, student
from tests.grading.corpus.folders import FOLDERS
from tests.grading.corpus.judge import MODULES, Bait, Judge, failures
from tests.grading.corpus.submission import points
from tests.grading.corpus.submissions import SUBMISSIONS


def main(arguments: argparse.Namespace) -> int:
    """Print the table; return how many submissions got marks other than those they deserve."""
    if reason := refusal():
        sys.exit(f"this machine allows no sandbox: {reason}")
    return graded(arguments.names) if arguments.door == "grade" else examined_alone(arguments.names)


def graded(names: list[str]) -> int:
    """Grade the chosen submissions by ``labkit grade``, all in one course folder; return how many marks are wrong."""
    everybody = (*SUBMISSIONS, *FOLDERS)
    chosen = [each for each in everybody if not names or any(name in each.name for name in names)]
    with tempfile.TemporaryDirectory() as folder:
        bait = Bait(Path(folder) / "class")
        with bait.listening():
            group = Class(bait, chosen)
            marks = group.grade()
    wrong = len(marks.changed + marks.left + bait.heard)
    print(f"{'name':46}{'deserved':>9}{'got':>5}  why")
    for each in chosen:
        name = student(each)
        got, expected = marks.cells.get(name), None if each.apart else each.expected
        unfair = got != expected or (each.apart not in marks.apart.get(name, ""))
        wrong += unfair
        deserved = "apart" if each.apart else f"{sum(points()[cell] for cell in each.passes):g}"
        line = f"{each.name:46}{deserved:>9}{'-' if got is None else f'{marks.totals[name]:g}':>5}  {each.why}"
        print(line + ("  <-- UNFAIR" if unfair else ""))
        if unfair:
            gained, lost = ((got or set()) - (expected or set())), ((expected or set()) - (got or set()))
            print(f"    gained {sorted(gained)}, lost {sorted(lost)}; {marks.apart.get(name, '')}")
    print(marks.said if wrong else "", *marks.changed, *marks.left, *bait.heard, sep="\n")
    print(f"{len(chosen)} submissions, {wrong} unfair")
    return wrong


def examined_alone(names: list[str]) -> int:
    """Examine the chosen submissions one after another; return how many marks are wrong."""
    chosen = [each for each in SUBMISSIONS if not names or any(name in each.name for name in names)]
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        bait = Bait(Path(folder) / "class")
        with bait.listening(), ForkServer(MODULES) as server:
            judge, files = Judge(server, bait), bait.files()
            print(f"{'kind':9}{'name':44}{'deserved':>9}{'got':>5}{'s':>7}  why")
            for each in chosen:
                started = time.monotonic()
                examined = judge.examine(each)
                got = {verdict.name for verdict in examined.marks if verdict.passed}
                left = judge.left_running()
                unfair = got != each.expected or bool(examined.trouble or left or bait.heard) or bait.files() != files
                wrong += unfair
                seconds = time.monotonic() - started
                line = f"{each.kind:9}{each.name:44}{each.deserved:9g}{examined.points:5g}{seconds:7.1f}  {each.why}"
                print(line + ("  <-- UNFAIR" if unfair else "  (a claim)" if each.claimed else ""), flush=True)
                if unfair or names:
                    print(f"    gained {sorted(got - each.passes)}, lost {sorted(each.passes - got)}")
                    print(f"    {examined.trouble} {left} {bait.heard} {dict(examined.failed_cells)}")
                    print(f"    {failures(examined)}", flush=True)
                bait.heard.clear()
    print(f"{len(chosen)} submissions, {wrong} of them unfair")
    return wrong


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="parts of names; none: the whole corpus")
    parser.add_argument("--door", choices=("examine", "grade"), default="examine")
    sys.exit(main(parser.parse_args()) > 0)
