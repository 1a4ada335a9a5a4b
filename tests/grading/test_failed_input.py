"""Feedback names the kind of input that failed, as the lab's author named it, and nothing else of a hidden test."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlsys_grading.lab.inputs import input_at
from tests.grading.gradebook_helpers import LAB, cell, graded, notebook
from tests.grading.test_grade import course, grade, hand_in

TEST = """assert mean([2, 4]) == 3
### BEGIN HIDDEN TESTS
def check(values, expected):
    assert mean(values) == expected
check([8317], 8317)
# Input: an empty list
check([], 0)
# Input: numbers below zero.
check([-8319, -8317], -8318)
### END HIDDEN TESTS"""


@pytest.mark.usefixtures("sandbox_allowed")
@pytest.mark.xdist_group("grade")
def test_feedback_names_the_input_that_failed(tmp_path: Path) -> None:
    right = "def mean(v):\n    ### BEGIN SOLUTION\n    return sum(v) / len(v) if v else 0\n    ### END SOLUTION"
    lab = notebook(cell(right, "mean", solution=True), graded("mean_test", TEST, 2))
    root = course(tmp_path / "class", lab)
    answers = {
        "ada": "sum(v) / len(v)",  # raises for an empty list
        "bob": "abs(sum(v)) / max(len(v), 1)",
        "cyd": "sum(v) / len(v) if v else 1",
        "dan": "3",
        "eve": "sum(v) / len(v) if v else 0",
    }
    for student, answer in answers.items():
        hand_in(root, student, {"mean": f"def mean(v):\n    return {answer}"}, lab)
    assert grade(root) == 0
    pages = {name: (root / "feedback" / name / LAB / f"{LAB}.html").read_text() for name in answers}
    for student, said in (("ada", "an empty list"), ("bob", "numbers below zero"), ("cyd", "an empty list")):
        assert f"It fails for {said}." in pages[student], student
    for student in ("dan", "eve"):
        assert "It fails for" not in pages[student], student
    assert "try other inputs" in pages["dan"]
    assert not [name for name, page in pages.items() if "8317" in page or "8318" in page]


@pytest.mark.parametrize(
    ("line", "name"), [(None, ""), (1, ""), (5, ""), (6, "an empty list"), (99, "numbers below zero")]
)
def test_a_name_holds_from_its_comment_to_the_next(line: int | None, name: str) -> None:
    assert input_at(TEST, line) == name
