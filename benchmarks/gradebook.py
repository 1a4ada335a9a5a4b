"""Cost of writing one graded submission: gradebook, graded notebook and feedback, beside nbgrader's own.

    python benchmarks/gradebook.py [--lab lab02_pca] [--submissions 1200] [--peer 24]

Needs `labkit build` first. Nothing is executed on either side: nbgrader's `autograde --no-execute` and
`generate_feedback`, in one process that has imported them, against ours. Prints a table, writes results/gradebook.json.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from record import write_result

from mlsys_grading.files import write_files
from mlsys_grading.gradebook.autograded import autograded_files
from mlsys_grading.gradebook.feedback import feedback_page
from mlsys_grading.gradebook.gradebook import Gradebook
from mlsys_grading.gradebook.paths import SubmissionPaths
from mlsys_grading.gradebook.registered import register
from mlsys_grading.gradebook.submission import match
from mlsys_grading.result import CellMark, Result

ROOT = Path(__file__).resolve().parents[1]
SLICES = 6


def timed(times: list[float], do: Callable[..., object], *arguments: object) -> None:
    start = time.perf_counter()
    do(*arguments)
    times.append((time.perf_counter() - start) * 1e3)


def ours(folder: Path, name: str, count: int, between: Callable[[int], None]) -> dict[str, list[float]]:
    """Return the milliseconds of each step for each submission; ``between`` is called after each submission."""
    registered = register(name, json.loads((ROOT / "build/source" / name / f"{name}.ipynb").read_text()))
    handed_in = json.loads((ROOT / "labs" / name / f"{name}.ipynb").read_text())
    times: dict[str, list[float]] = {"gradebook": [], "notebook": [], "feedback": []}
    with Gradebook(folder / "ours.db", "mlsys") as book:
        book.register(registered)
        for at in range(count):
            marks = tuple(
                CellMark(
                    cell.name,
                    cell.max_score if (at + place) % 2 else 0.0,
                    cell.max_score,
                    error="" if (at + place) % 2 else "CheckError: expected 3, got 4",
                    kinds=() if (at + place) % 2 else ("CheckError", "AssertionError"),
                    printed="a line that student code printed\n" * 20,
                    hidden=cell.hidden,
                )
                for place, cell in enumerate(registered.tests)
            )
            result = Result(f"job{at}", name, f"student{at:05d}", marks)
            cells = match(registered, handed_in)
            timed(times["gradebook"], book.record, registered, cells, result, "2030-01-01 10:00:00 UTC")
            timed(times["notebook"], write_notebook, folder, registered, cells, result)
            timed(times["feedback"], write_page, book, folder, registered, cells, result)
            between(at)
    return times


def write_notebook(folder: Path, registered: Any, cells: Any, result: Result) -> None:
    path = SubmissionPaths.of(folder, result.student, result.lab).notebook
    write_files(autograded_files(path, registered, cells, result))


def write_page(book: Gradebook, folder: Path, registered: Any, cells: Any, result: Result) -> None:
    standing = book.standing(registered, result.student)
    assert standing is not None
    path = SubmissionPaths.of(folder, result.student, result.lab).page
    write_files({path: feedback_page(registered, cells, result, standing)})


def nbgraders(folder: Path, name: str, count: int, times: dict[str, list[float]]) -> Callable[[int], None]:
    """Return a function that grades one student with nbgrader and adds the milliseconds of each step to ``times``."""
    from nbgrader.converters import Autograde, GenerateAssignment, GenerateFeedback
    from nbgrader.coursedir import CourseDirectory
    from nbgrader.preprocessors import ClearOutput, Execute
    from traitlets.config import Config

    shutil.copytree(ROOT / "build/source" / name, folder / "source" / name)
    for at in range(count):
        shutil.copytree(ROOT / "labs" / name, folder / "submitted" / f"student{at:05d}" / name)

    def convert(kind: type, student: str) -> None:
        config = Config()
        config.CourseDirectory.root = str(folder)
        config.CourseDirectory.assignment_id = name
        config.CourseDirectory.student_id = student
        converter = kind(coursedir=CourseDirectory(config=config), config=config)
        if kind is Autograde:
            for steps in (converter.sanitize_preprocessors, converter.autograde_preprocessors):
                steps[:] = [step for step in steps if step not in (Execute, ClearOutput)]  # what --no-execute does
        converter.start()

    def grade(at: int) -> None:
        timed(times["gradebook and notebook"], convert, Autograde, f"student{at:05d}")
        timed(times["feedback"], convert, GenerateFeedback, f"student{at:05d}")

    convert(GenerateAssignment, "*")
    return grade


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lab", default="lab02_pca")
    parser.add_argument("--submissions", type=int, default=1200)
    parser.add_argument("--peer", type=int, default=24)
    arguments = parser.parse_args()
    logging.disable()
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # nbgrader starts alembic
    folder = Path(tempfile.mkdtemp(prefix="gradebook-"))
    every = max(1, arguments.submissions // arguments.peer)
    theirs: dict[str, list[float]] = {"gradebook and notebook": [], "feedback": []}
    try:
        grade = nbgraders(folder / "nbgrader", arguments.lab, arguments.submissions // every, theirs)
        mine = ours(
            folder,
            arguments.lab,
            arguments.submissions,
            lambda at: None if (at + 1) % every else grade(at // every),  # the two alternate: the same load for both
        )
    finally:
        shutil.rmtree(folder)
    whole = [sum(steps) for steps in zip(*mine.values(), strict=True)]
    graded = median(map(sum, zip(mine["gradebook"], mine["notebook"], strict=True)))
    size = max(1, len(whole) // SLICES)
    result = {
        "lab": arguments.lab,
        "submissions": len(whole),
        **{f"{step.replace(' ', '_')}_ms": median(each) for step, each in mine.items()},
        "all_ms": median(whole),
        "all_ms_99th": quantiles(whole, n=100)[98],
        "all_ms_by_sixths": [round(median(whole[at : at + size]), 2) for at in range(0, size * SLICES, size)],
        "nbgrader_submissions": len(theirs["feedback"]),
        **{f"nbgrader_{step.replace(' ', '_')}_ms": median(each) for step, each in theirs.items()},
        # Its feedback shows the whole notebook and ours the tasks: no ratio of these two.
        "gradebook_and_notebook_times_nbgrader": median(theirs["gradebook and notebook"]) / graded,
    }
    for key, value in result.items():
        print(f"{key:<40}{value if not isinstance(value, float) else round(value, 2)!s:>12}")
    write_result("gradebook", result)


if __name__ == "__main__":
    main()
