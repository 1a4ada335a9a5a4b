"""Benchmark of ten thousand submissions graded by dask workers in one run: rate and memory stay flat, each graded once.

    python benchmarks/grading_scale.py [--submissions 10000] [--workers 4]

A cut-down notebook (two tasks, no torch), no two submissions alike, by `labkit grade --engine dask:...` in a process of
its own. Every second: the grader's memory, and how many submissions are written. Writes results/grading_scale.json.
"""

from __future__ import annotations

import argparse
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
from record import write_result

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
LAB = "lab92_scale"
LABKIT = [sys.executable, "-c", "import sys; from mlsys_labkit._frontends.cli import main; sys.exit(main())"]
TASKS = {"total": "return sum(values)", "largest": "return max(values)"}
WRONG_EACH = 10


def cell(source: str, name: str, **flags: Any) -> dict[str, Any]:
    off = {"grade": False, "solution": False, "locked": False, "task": False, "schema_version": 3, "grade_id": name}
    made = {"cell_type": "code", "id": name, "source": source, "outputs": [], "execution_count": None}
    return made | {"metadata": {"nbgrader": off | flags}}


def notebook(*cells: dict[str, Any]) -> str:
    kernel = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
    return json.dumps({"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5})


def test(name: str) -> dict[str, Any]:
    expected = {"total": 6, "largest": 3}[name]
    return cell(f"assert {name}([1, 2, 3]) == {expected}", f"{name}_test", grade=True, locked=True, points=5)


def make_course(root: Path, count: int) -> dict[str, float]:
    """Write the course folder, and return student -> the points that the submission deserves."""
    source = []
    for name, body in TASKS.items():
        text = f"def {name}(values):\n    ### BEGIN SOLUTION\n    {body}\n    ### END SOLUTION"
        source += [cell(text, name, solution=True), test(name)]
    (root / "source" / LAB).mkdir(parents=True)
    (root / "source" / LAB / f"{LAB}.ipynb").write_text(notebook(*source))
    deserved = {}
    for at in range(count):
        student, wrong = f"s{at:05d}", at % WRONG_EACH == 0
        bodies = TASKS | ({"largest": "return min(values)"} if wrong else {})
        cells = []
        for name, body in bodies.items():
            cells += [cell(f"def {name}(values):\n    {body}  # {at}", name, solution=True), test(name)]
        folder = root / "submitted" / student / LAB
        folder.mkdir(parents=True)
        (folder / f"{LAB}.ipynb").write_text(notebook(*cells))
        deserved[student] = 5.0 if wrong else 10.0
    return deserved


def watch(grader: subprocess.Popen[bytes], root: Path, count: int) -> list[dict[str, float]]:
    """Record seconds, submissions written and the grader's resident MB every second until the grader ends."""
    process, began, seen = psutil.Process(grader.pid), time.monotonic(), []
    written = root / ".mlsys-grading" / "written" / LAB
    while grader.poll() is None:
        time.sleep(1)
        try:
            memory = process.memory_info().rss / 1e6
        except psutil.NoSuchProcess:
            break
        done = len(os.listdir(written)) if written.exists() else 0
        seen.append({"seconds": time.monotonic() - began, "graded": done, "grader_mb": memory})
        if sys.stdout.isatty():
            print(f"\r{done}/{count}, {memory:.0f} MB", end="", flush=True)
    return seen


def quarters(seen: list[dict[str, float]], count: int) -> list[dict[str, float]]:
    """Return the rate and the largest memory in each quarter of the submissions."""
    found = []
    for part in range(4):
        low, high = count * part / 4, count * (part + 1) / 4
        inside = [each for each in seen if low < each["graded"] <= high and each["graded"] < count]
        if len(inside) > 1:
            first, last = inside[0], inside[-1]
            rate = 60 * (last["graded"] - first["graded"]) / (last["seconds"] - first["seconds"])
            found.append({"per_minute": round(rate), "grader_mb": round(max(each["grader_mb"] for each in inside))})
    return found


def main() -> int:
    from tests.grading.dask_processes import scheduler

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--submissions", type=int, default=10_000)
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2)))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="scale-") as folder:
        place, root = Path(folder), Path(folder) / "course"
        deserved = make_course(root, arguments.submissions)
        with scheduler(place, arguments.workers) as (process, address):
            command = [*LABKIT, "grade", LAB, "--course", str(root), "--engine", f"dask:{address}"]
            with open(place / "said", "wb") as said:
                began = time.monotonic()
                grader = subprocess.Popen(command, stdout=said, stderr=said)
                seen = watch(grader, root, arguments.submissions)
                seconds = time.monotonic() - began
            scheduler_mb = psutil.Process(process.pid).memory_info().rss / 1e6
        with sqlite3.connect(root / "gradebook.db") as book:
            query = (
                "SELECT s.student_id, sum(g.auto_score), count(*) FROM grade g JOIN submitted_notebook n "
                "ON g.notebook_id = n.id JOIN submitted_assignment s ON n.assignment_id = s.id GROUP BY s.student_id"
            )
            found = {student: (points, rows) for student, points, rows in book.execute(query)}
        right = sum(found.get(student) == (points, len(TASKS)) for student, points in deserved.items())
        tail = (place / "said").read_text()[-400:]
    result = {
        "submissions": arguments.submissions,
        "workers": arguments.workers,
        "exit_code": grader.returncode,
        "graded_once_and_as_deserved": right,
        "seconds": round(seconds, 1),
        "per_minute": round(60 * arguments.submissions / seconds),
        "quarters": quarters(seen, arguments.submissions),
        "largest_grader_mb": round(max(each["grader_mb"] for each in seen)),
        "scheduler_mb_at_the_end": round(scheduler_mb),
    }
    print(json.dumps(result, indent=2))
    if right != arguments.submissions or grader.returncode:
        print(tail)
        return 1
    write_result("grading_scale", result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
