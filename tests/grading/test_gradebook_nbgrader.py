"""nbgrader itself on the same submissions and on our results: the same rows, and its tools accept them."""

from __future__ import annotations

import csv
import json
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbgrader.api import Gradebook as NbgraderGradebook
from nbgrader.plugins import CsvExportPlugin
from nbgrader.utils import determine_grade

from mlsys_grading.files import write_files
from mlsys_grading.gradebook.autograded import autograded_files
from mlsys_grading.gradebook.course import course_settings
from mlsys_grading.gradebook.gradebook import Gradebook
from mlsys_grading.gradebook.paths import SubmissionPaths
from mlsys_grading.gradebook.submission import match
from mlsys_grading.result import CellMark, Result
from tests.grading.gradebook_helpers import LAB, SOURCE, answered, lab, rows
from tests.grading.nbgrader_cli import NbgraderCourse

ANSWERS: dict[str, dict[str, str]] = {
    "solved": {
        "double": "def double(x):\n    return 2 * x",
        "halve": "def halve(x):\n    return x / 2",
        "why": "Because.",
        "draw": "print('a drawing')",
    },
    "half": {
        "double": "def double(x):\n    return min(2 * x, 4)",
        "halve": "def halve(x):\n    return x",
        "why": "So.",
    },
    "unsolved": {},
    "late": {"double": "def double(x):\n    return 2 * x", "helper": "LIMIT = 99"},
}
TIMES = dict.fromkeys(ANSWERS, "2030-01-01 10:00:00 UTC") | {"late": "2030-01-03 10:00:00 UTC"}
LATE = """
from nbgrader.plugins import BasePlugin


class APointADay(BasePlugin):
    def late_submission_penalty(self, student_id, score, total_seconds_late):
        return 1.0 * total_seconds_late / 86400
"""


def hand_in(course: NbgraderCourse) -> None:
    (course.root / "late_a_point.py").write_text(LATE)
    with (course.root / "nbgrader_config.py").open("a") as config:
        config.write('\nc.AssignLatePenalties.plugin_class = "late_a_point.APointADay"\n')
    for student, answers in ANSWERS.items():
        folder = course.root / "submitted" / student / LAB
        folder.mkdir(parents=True)
        (folder / f"{LAB}.ipynb").write_text(json.dumps(answered(answers)))
        (folder / "timestamp.txt").write_text(TIMES[student])


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return sorted(csv.DictReader(file), key=lambda row: row["student_id"])


def set_due(course: NbgraderCourse) -> None:
    connection = sqlite3.connect(course.root / "gradebook.db")
    with connection:
        connection.execute("UPDATE assignment SET duedate = '2030-01-02 10:00:00.000000'")
    connection.close()


def verdicts(course: NbgraderCourse, student: str) -> Result:
    """Return the marks of nbgrader's own autograder as a result."""
    path = course.root / "autograded" / student / LAB / f"{LAB}.ipynb"
    marks = []
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.metadata.get("nbgrader", {}).get("grade") and not cell.metadata.nbgrader.solution:
            points, most = determine_grade(cell)
            marks.append(CellMark(cell.metadata.nbgrader.grade_id, points, most, error="" if points else "Wrong: no"))
    return Result("job", LAB, student, tuple(marks))


pytestmark = pytest.mark.places  # nbgrader grades a class


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[NbgraderCourse, NbgraderCourse]:
    """Grade the same submissions with nbgrader in one course and with our gradebook in another."""
    root = tmp_path_factory.mktemp("book")
    theirs, ours = NbgraderCourse(root / "theirs"), NbgraderCourse(root / "ours")
    source = root / "source" / LAB
    source.mkdir(parents=True)
    (source / f"{LAB}.ipynb").write_text(json.dumps(SOURCE))
    hand_in(theirs)
    hand_in(ours)
    theirs.generate(root / "source", LAB)
    set_due(theirs)
    theirs.run("autograde", LAB)
    registered, settings = lab(), course_settings(ours.root)
    shutil.copytree(root / "source", ours.root / "source")
    with Gradebook(ours.root / "gradebook.db", settings.course, settings.late) as book:
        book.register(registered)
        set_due(ours)
        for student in ANSWERS:
            folder = ours.root / "submitted" / student / LAB
            submission = match(registered, json.loads((folder / f"{LAB}.ipynb").read_text()))
            result, time = verdicts(theirs, student), (folder / "timestamp.txt").read_text()
            book.record(registered, submission, result, time)
            path = SubmissionPaths.of(ours.root, student, LAB).notebook
            write_files(autograded_files(path, registered, submission, result, time))
    return theirs, ours


def test_gradebook_rows_equal_nbgraders(both: tuple[NbgraderCourse, NbgraderCourse]) -> None:
    theirs, ours = (rows(course.root / "gradebook.db") for course in both)
    for table in theirs:
        assert ours[table] == theirs[table], table
    scores = {row[:2]: row[3] for row in theirs["grades"]}
    assert scores["half", "double_more"] == 0
    assert scores["half", "halve_test"] == 0
    assert scores["solved", "halve_test"] == 2.0, "the partial credit that nbgrader read"
    assert scores["solved", "why"] is None
    assert scores["unsolved", "why"] == 0
    assert ("late", 1.0) in theirs["penalties"]


def test_export_equals_nbgraders_row_by_row(both: tuple[NbgraderCourse, NbgraderCourse]) -> None:
    theirs, ours = both
    ours.run("export")
    path = theirs.root / "grades.csv"
    with NbgraderGradebook(f"sqlite:///{theirs.root / 'gradebook.db'}") as book:
        CsvExportPlugin(to=str(path)).export(book)  # what the command runs
    expected = table(path)
    assert [row["student_id"] for row in expected] == sorted(ANSWERS)
    assert {row["score"] for row in expected} == {"7.0", "3.0", "0.0", "4.0"}
    assert table(ours.root / "grades.csv") == expected


def test_nbgrader_leaves_our_notebooks_alone_and_makes_feedback_of_them(
    both: tuple[NbgraderCourse, NbgraderCourse],
) -> None:
    _, ours = both
    paths = [ours.root / "autograded" / student / LAB / f"{LAB}.ipynb" for student in ANSWERS]
    before = {path: path.read_bytes() for path in paths}
    ours.run("autograde", LAB)
    assert {path: path.read_bytes() for path in paths} == before
    page = ours.feedback("half", LAB)
    assert "Wrong: no" in page
    assert "(Score: 3.0 / 27.0)" in page


@pytest.fixture
def formgrader(both: tuple[NbgraderCourse, NbgraderCourse], monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return formgrader's own API, from which its handlers get their data."""
    from nbgrader.apps.api import NbGraderAPI
    from nbgrader.coursedir import CourseDirectory
    from traitlets.config import Config

    root = both[1].root
    config = Config()
    config.CourseDirectory.root = str(root)
    config.CourseDirectory.course_id = "mlsys"
    return NbGraderAPI(CourseDirectory(config=config), config=config)


def test_formgrader_shows_every_submission(formgrader: Any) -> None:
    from nbconvert.exporters import HTMLExporter
    from nbgrader.server_extensions import formgrader as extension
    from traitlets.config import Config

    listed = {row["student"]: row for row in formgrader.get_notebook_submissions(LAB, LAB)}
    assert set(listed) == set(ANSWERS)
    assert all(row["autograded"] for row in formgrader.get_submissions(LAB))
    assert listed["solved"]["needs_manual_grade"]
    assert listed["half"]["failed_tests"]
    assert not listed["half"]["flagged"]
    (assignment,) = formgrader.get_assignments()
    assert (assignment["num_submissions"], assignment["max_score"]) == (len(ANSWERS), 27)
    templates = Path(extension.__file__).parent / "templates"
    config = Config()
    config.HTMLExporter.template_name = "formgrade"
    config.HTMLExporter.extra_template_basedirs = [str(templates)]
    path = Path(formgrader.coursedir.root) / "autograded" / "half" / LAB / f"{LAB}.ipynb"
    resources = {"index": 0, "total": 4, "base_url": "", "submission_id": listed["half"]["id"]}
    names = ("assignment_id", "notebook_id", "student", "last_name", "first_name", "notebook_path")
    page, _ = HTMLExporter(config=config).from_filename(str(path), resources=resources | dict.fromkeys(names, LAB))
    for cell in lab().cells:
        if cell.max_score:
            assert f'id="{cell.name}"' in page
    assert "Wrong: no" in page


def test_two_courses_may_call_their_plugins_the_same(tmp_path: Path) -> None:
    found = []
    for points in (1.0, 2.0):
        course = tmp_path / str(points)
        course.mkdir()
        (course / "same_name.py").write_text(LATE.replace("1.0", str(points)))
        (course / "nbgrader_config.py").write_text(
            'c = get_config()\nc.AssignLatePenalties.plugin_class = "same_name.APointADay"\n'
        )
        found.append(course_settings(course).late.late_submission_penalty("ada", 10.0, 86400.0))
    assert found == [1.0, 2.0]
