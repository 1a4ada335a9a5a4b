"""nbgrader, unchanged, on the labs: release, autograde and feedback give the marks that ``labkit prove`` computes."""

from __future__ import annotations

import shutil
from pathlib import Path

import nbformat
import pytest

from mlsys_grading.build.notebook import dumps, source_notebook
from mlsys_grading.lab import Lab, lab_names, read_lab
from mlsys_grading.prove.run import prove
from tests.conftest import ROOT
from tests.grading.course import FIXTURE
from tests.grading.nbgrader_cli import NbgraderCourse

LABS = lab_names(ROOT)
pytestmark = pytest.mark.timeout(1200)  # nbgrader starts a Jupyter kernel for each of three submissions


def grade(course: NbgraderCourse, lab: Lab, tmp_path: Path) -> tuple[dict[str, dict[str, float]], str]:
    """Hand in the solution, the untouched release and one wrong answer a task; returns marks and a feedback page."""
    source = tmp_path / "source"
    (source / lab.name).mkdir(parents=True)
    (source / lab.name / f"{lab.name}.ipynb").write_text(dumps(source_notebook(lab)), encoding="utf-8")
    if (lab.folder / "data").is_dir():
        shutil.copytree(lab.folder / "data", source / lab.name / "data")
    released = course.generate(source, lab.name)
    solutions = {cell.index: cell.source for cell in lab.cells if cell.is_solution}
    wrong = {task.solution.index: lab.wrong_for(task.name)[0].source for task in lab.tasks}
    for student, answers in (("solved", solutions), ("unsolved", {}), ("wrong", wrong)):
        notebook = nbformat.from_dict(released)
        mine = nbformat.reads(nbformat.writes(notebook), as_version=4)
        for index, answer in answers.items():
            mine.cells[index].source = answer
        course.submit(student, lab.name, mine)
    return course.scores(lab.name), course.feedback("wrong", lab.name)


def check(course: NbgraderCourse, lab: Lab, tmp_path: Path) -> None:
    marks, page = grade(course, lab, tmp_path)
    points = {test.grade_id: test.points for task in lab.tasks for test in task.tests}
    assert marks["solved"] == points
    assert marks["unsolved"] == dict.fromkeys(points, 0.0)
    (proof,) = prove([lab], jobs=2)
    for task, proved in zip((task for task in lab.tasks if task.tests), proof.tasks, strict=True):
        # Each task's wrong answer stands alone in a proof; here all stand in one notebook, as in a weak submission.
        earned = sum(marks["wrong"][test.grade_id] for test in task.tests)
        assert earned <= proved.wrong[0].keeps, f"{task.name}: nbgrader gives {earned}"
    assert proof.problems == ()
    assert f"{sum(marks['wrong'].values()):g}" in page.replace(".0", "")
    assert "application/vnd.jupyter.widget-state+json" not in page


def test_the_tiny_lab_is_graded_as_it_is_proved(nbgrader: NbgraderCourse, tmp_path: Path) -> None:
    lab = read_lab(FIXTURE, "lab90_tiny")
    marks, page = grade(nbgrader, lab, tmp_path)
    assert marks["solved"] == {"scaled_test": 40.0, "scaled_test_empty": 10.0, "Tally_test": 50.0}
    assert set(marks["unsolved"].values()) == {0.0}
    assert marks["wrong"] == {"scaled_test": 0.0, "scaled_test_empty": 10.0, "Tally_test": 0.0}
    assert "CheckError" in page


@pytest.mark.skipif(not LABS, reason="no labs in solutions/ yet")
def test_a_real_lab_is_graded_as_it_is_proved(nbgrader: NbgraderCourse, tmp_path: Path) -> None:
    check(nbgrader, read_lab(ROOT, LABS[0]), tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("name", LABS)
def test_every_lab_is_graded_as_it_is_proved(nbgrader: NbgraderCourse, tmp_path: Path, name: str) -> None:
    check(nbgrader, read_lab(ROOT, name), tmp_path)
