"""``labkit build``: write the students' notebooks and nbgrader's sources from solutions/."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlsys_grading.arguments import add_labs, root_of
from mlsys_labkit.errors import LabkitError

if TYPE_CHECKING:
    from mlsys_grading.lab import Lab


def add_parser(subparsers: Any) -> None:
    """Add the verb ``build`` to ``labkit``."""
    parser = subparsers.add_parser(
        "build", help="make student notebooks and nbgrader sources from solutions/", description=__doc__
    )
    add_labs(parser)
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit 1 with the stale files if labs/ is not up to date"
    )
    parser.add_argument(
        "--contract",
        action="store_true",
        help="write nothing; grade each lab's solution, and print what its calls do other than return plain data: "
        "submissions may do the same, and nothing else",
    )
    parser.add_argument("--force", action="store_true", help="overwrite notebooks in labs/ that somebody has worked in")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Build, and return 0 (built, or up to date) or 1 (findings, stale files, or notebooks with work in them)."""
    from mlsys_grading.build.lint import lint
    from mlsys_grading.build.outputs import outputs, stale, strays, worked_in, write
    from mlsys_grading.lab import choose, read_labs

    root = root_of(arguments)
    wanted = choose(root, arguments.labs)
    # The others are read for their task names, which are unique over all labs.
    everything = read_labs(root, wanted) + _readable(root, set(choose(root)) - set(wanted))
    findings = lint(everything)
    labs = [lab for lab in everything if lab.name in wanted]
    for warning in (each for lab in labs for each in findings[lab.name] if each.warns):
        print(warning, file=sys.stderr)
    broken = {lab.name: [str(each) for each in findings[lab.name] if not each.warns] for lab in labs}
    problems = [each for found in broken.values() for each in found]
    for lab in labs:
        if broken[lab.name]:
            continue
        if arguments.contract:
            _tell_contract(lab)
            continue
        made = outputs(lab)
        if arguments.check:
            problems += [f"{name}: stale; run: labkit build" for name in stale(root, made)]
        elif (mine := worked_in(root, made)) and not arguments.force:
            instead = "copy it away, or run: labkit build --force"
            problems += [f"{name}: somebody has worked in it; {instead}" for name in mine]
        else:
            print(_summary(lab, write(root, made)))
    if not (arguments.labs or arguments.contract):
        problems += [f"{name}: no lab makes it; delete it" for name in strays(root, everything)]
    for problem in problems:
        print(problem, file=sys.stderr)
    if problems:
        built = "nothing was written" if arguments.check else "a lab with findings was not built"
        print(f"labkit build: {len(problems)} to mend; {built}", file=sys.stderr)
    elif arguments.check:
        print(f"labs/ is up to date with {len(labs)} sources")
    return 1 if problems else 0


def _tell_contract(lab: Lab) -> None:
    from mlsys_grading.grade.contract import in_words, learnt

    lines = list(in_words(learnt(lab))) or ["calls return plain data, and do nothing else"]
    print("\n  ".join([f"{lab.name}:", *lines]), flush=True)


def _readable(root: Path, names: Iterable[str]) -> list[Lab]:
    """Read labs that were not asked for; one that cannot be read must not stop the others."""
    from mlsys_grading.lab import read_lab

    found = []
    for name in sorted(names):
        with contextlib.suppress(LabkitError):
            found.append(read_lab(root, name))
    return found


def _summary(lab: Lab, changed: Sequence[Path]) -> str:
    sizes = f"{len(lab.tasks):3} tasks {lab.points:5g} points {len(lab.wrong_answers):4} wrong answers"
    return f"{lab.name:28} {sizes}   {f'{len(changed)} files written' if changed else 'unchanged'}"
