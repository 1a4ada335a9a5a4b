"""The same submissions through real ``nbgrader autograde`` and through ``labkit grade``: two tables of rows."""

from __future__ import annotations

import contextlib
import copy
import json
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nbgrader.api import Gradebook as NbgraderGradebook

from mlsys_grading.build.notebook import source_notebook, student_notebook
from mlsys_grading.gradebook.course import course_settings
from mlsys_grading.gradebook.gradebook import Gradebook
from mlsys_grading.gradebook.registered import register
from mlsys_grading.lab import Lab
from tests.conftest import ROOT
from tests.grading.gradebook_helpers import rows
from tests.grading.nbgrader_cli import CONFIG, NbgraderCourse

DUE = "2030-01-02 10:00:00.000000"
IN_TIME, A_DAY_LATE = "2030-01-01 10:00:00 UTC", "2030-01-03 10:00:00 UTC"
LATE = """
from nbgrader.plugins import BasePlugin


class TwoPoints(BasePlugin):
    def late_submission_penalty(self, student_id, score, total_seconds_late):
        return 2.0 * total_seconds_late / 86400
"""
SETTINGS = '\nc.AssignLatePenalties.plugin_class = "late.TwoPoints"\n'

Row = tuple[str, str, str]  # student, cell, what
Rows = dict[Row, Any]


@dataclass(frozen=True)
class HandIn:
    """One submission: the notebook as in its file, its time, and the files beside it."""

    notebook: bytes
    time: str = ""
    beside: Mapping[str, str] = field(default_factory=dict)

    def write(self, folder: Path, lab: str) -> None:
        folder.mkdir(parents=True)
        (folder / f"{lab}.ipynb").write_bytes(self.notebook)
        if self.time:
            (folder / "timestamp.txt").write_text(self.time)
        for name, text in self.beside.items():
            (folder / name).write_text(text)


def by_nbgrader(root: Path, lab: str, source: Mapping[str, Any], class_: Mapping[str, HandIn], copies: int = 1) -> Rows:
    """Return nbgrader's rows; ``copies`` of the course grade a part of the class each, side by side."""
    first = NbgraderCourse(root / "nbgrader")
    _settings(first.root)
    (root / "source" / lab).mkdir(parents=True)
    (root / "source" / lab / f"{lab}.ipynb").write_text(json.dumps(source))
    first.generate(root / "source", lab)
    _set_due(first.root)
    courses = [first]
    for number in range(1, copies):
        course = object.__new__(NbgraderCourse)
        course.root = Path(shutil.copytree(first.root, root / f"nbgrader{number}"))
        courses.append(course)
    for at, (student, handed_in) in enumerate(class_.items()):
        handed_in.write(courses[at % copies].root / "submitted" / student / lab, lab)
    with ThreadPoolExecutor(copies) as pool:
        list(pool.map(lambda course: _autograde(course, lab), courses))
    found: Rows = {}
    for course in courses:
        found |= read(course.root / "gradebook.db", lab)
    return found


def by_labkit(root: Path, labs: Mapping[str, tuple[Mapping[str, Any], Mapping[str, HandIn]]], jobs: int = 3) -> Rows:
    """Return the rows of one ``labkit grade --all``; ``labs`` is name -> source, class."""
    course = root / "labkit"
    course.mkdir(parents=True)
    shutil.copy(CONFIG, course)
    _settings(course)
    settings = course_settings(course)
    for lab, (source, class_) in labs.items():
        (course / "source" / lab).mkdir(parents=True)
        (course / "source" / lab / f"{lab}.ipynb").write_text(json.dumps(source))
        for student, handed_in in class_.items():
            handed_in.write(course / "submitted" / student / lab, lab)
        with Gradebook(course / "gradebook.db", settings.course, settings.late) as book:
            book.register(register(lab, source))
    _set_due(course)
    code = "import sys; from mlsys_labkit._frontends.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", code, "grade", "--all", "--course", str(course), "--jobs", str(jobs)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return {key: value for lab in labs for key, value in read(course / "gradebook.db", lab).items()}


def read(path: Path, lab: str) -> Rows:
    """Return all rows of a gradebook about one lab's submissions."""
    everything = rows(path)
    with NbgraderGradebook(f"sqlite:///{path}") as book:
        notebook = book.find_notebook(lab, lab)
        cells = {each.name for each in (*notebook.grade_cells, *notebook.solution_cells, *notebook.task_cells)}
        found: Rows = {(each.student.id, lab, "total"): each.score for each in book.assignment_submissions(lab)}
        for each in book.assignment_submissions(lab):
            found[each.student.id, lab, "late"] = each.late_submission_penalty
            found[each.student.id, lab, "time"] = str(each.timestamp)
    for student, cell, kind, auto, manual, extra, waits in everything["grades"]:
        if cell in cells:
            found[student, cell, f"mark of {kind}"] = (auto, manual, extra)
            found[student, cell, f"{kind} waits for a person"] = bool(waits)
    for student, cell, kind, auto, manual in everything["comments"]:
        if cell in cells:
            found[student, cell, f"comment on {kind}"] = (auto, manual)
    return found


def differences(theirs: Rows, ours: Rows) -> dict[str, dict[str, tuple[Any, Any]]]:
    """Return student -> "cell: what" -> nbgrader's and ours, where the two differ."""
    found: dict[str, dict[str, tuple[Any, Any]]] = {}
    for key in sorted(theirs.keys() | ours.keys()):
        pair = theirs.get(key, "no row"), ours.get(key, "no row")
        if pair[0] != pair[1]:
            found.setdefault(key[0], {})[f"{key[1]}: {key[2]}"] = pair
    return found


def lost_by_nbgrader(found: Mapping[str, Mapping[str, tuple[Any, Any]]]) -> dict[str, set[str]]:
    """Return student -> cells whose marks differ."""
    return {student: {key.partition(": ")[0] for key in each if ": mark of " in key} for student, each in found.items()}


def _settings(course: Path) -> None:
    (course / "late.py").write_text(LATE)
    with (course / CONFIG.name).open("a") as config:
        config.write(SETTINGS)


def _set_due(course: Path) -> None:
    connection = sqlite3.connect(course / "gradebook.db")
    with connection:
        connection.execute("UPDATE assignment SET duedate = ?", (DUE,))
    connection.close()


def _autograde(course: NbgraderCourse, lab: str) -> None:
    with contextlib.suppress(AssertionError):  # one submission cannot be graded: the rows show it
        course.run("autograde", lab)


def of_a_lab(lab: Lab) -> tuple[dict[str, Any], dict[str, HandIn]]:
    """Return a lab's source and its class: one submission is solved, one lacks two answers and is late."""
    source: dict[str, Any] = json.loads(json.dumps(source_notebook(lab)))
    released = json.loads(json.dumps(student_notebook(lab)))
    answers = {cell.grade_id: cell.source for cell in lab.cells if cell.is_solution}
    names = [task.name for task in lab.tasks if task.tests]
    return source, {
        "solved": HandIn(_answered(released, answers), IN_TIME),
        "half": HandIn(
            _answered(released, {k: v for k, v in answers.items() if k not in (names[1], names[-1])}), A_DAY_LATE
        ),
    }


def _answered(released: Mapping[str, Any], answers: Mapping[str, str]) -> bytes:
    notebook = copy.deepcopy(released)
    for cell in notebook["cells"]:
        cell["source"] = answers.get(cell["metadata"].get("nbgrader", {}).get("grade_id"), cell["source"])
    return json.dumps(notebook).encode()
