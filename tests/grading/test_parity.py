"""Marks compared with nbgrader's row by row: real ``nbgrader autograde`` beside ``labkit grade``, differences listed.

A row is a mark, a comment, whether a person is waited for, a late penalty, a time or a total. ``DIFFERENCES`` is all
there is between the two; a difference that it lacks is an error, and so is one that it has and that is not there.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mlsys_grading.lab import lab_names, read_lab
from tests.conftest import ROOT
from tests.grading import gradebook_helpers
from tests.grading.corpus.door import student
from tests.grading.corpus.submission import LAB, points, source
from tests.grading.corpus.submissions import SUBMISSIONS
from tests.grading.parity import A_DAY_LATE, IN_TIME, HandIn, by_labkit, by_nbgrader, differences, of_a_lab

pytestmark = [
    pytest.mark.usefixtures("sandbox_allowed"),
    pytest.mark.xdist_group("corpus"),
]
HONEST = [each for each in SUBMISSIONS if each.kind == "honest"]
SOFTMAX = ("softmax_test", "softmax_test_large")
DIFFERENCES = {
    "noisy-on-stderr": (SOFTMAX, "nbgrader takes any word on stderr for a failure"),
    "a-progress-bar": (("windows_test",), "nbgrader takes any word on stderr for a failure"),
    "scribbles-on-its-argument": (SOFTMAX, "in one process the test cannot see that its input was changed"),
}
"""Student -> the cells whose marks are not nbgrader's, and why the corpus's score rules there."""


def expected(scores: dict[str, tuple[float, float]]) -> dict[str, dict[str, tuple[object, object]]]:
    """Return the expected result of ``differences``: each listed cell has all points or none, and totals follow."""
    found: dict[str, dict[str, tuple[object, object]]] = {}
    by_name = {student(each): each for each in HONEST}
    for name, (cells, _) in DIFFERENCES.items():
        deserved = by_name[name].passes
        rows: dict[str, tuple[object, object]] = {f"{LAB}: total": scores[name]}
        for cell in cells:
            ours = points()[cell] if cell in deserved else 0.0
            rows[f"{cell}: mark of GradeCell"] = ((points()[cell] - ours, None, None), (ours, None, None))
        found[name] = rows
    return found


@pytest.mark.places  # nbgrader's own command
def test_every_kind_of_cell_is_marked_as_nbgrader_marks_it(tmp_path: Path) -> None:
    """Tests, partial credit, answers for a person, a task, an untouched answer, a late submission."""
    whole = json.dumps(gradebook_helpers.SOURCE).replace(
        "float(4 * (halve(2) == 1) / 2)", "float(2 * (halve(2) == 1) + 2 * (halve(6) == 3))"
    )
    name, notebook = gradebook_helpers.LAB, json.loads(whole)
    right = {"double": "def double(x):\n    return 2 * x", "halve": "def halve(x):\n    return x / 2"}
    half = {"double": "def double(x):\n    return min(2 * x, 4)", "halve": "def halve(x):\n    return 1"}
    class_ = {
        "solved": (right | {"why": "Because.", "draw": "print('a drawing')"}, IN_TIME),
        "half": (half, IN_TIME),
        "late": (right | {"helper": "LIMIT = 99"}, A_DAY_LATE),
    }
    handed_in = {
        who: HandIn(json.dumps(gradebook_helpers.answered(answers, notebook)).encode(), time)
        for who, (answers, time) in class_.items()
    }
    theirs = by_nbgrader(tmp_path, name, notebook, handed_in)
    ours = by_labkit(tmp_path, {name: (notebook, handed_in)}, jobs=1)
    assert differences(theirs, ours) == {}
    assert theirs["solved", "why", "GradeCell waits for a person"] is True
    assert theirs["half", "why", "comment on SolutionCell"] == ("No response.", None)
    assert theirs["half", "halve_test", "mark of GradeCell"] == (2.0, None, None)
    assert theirs["late", name, "late"] == 2.0
    assert [theirs[who, name, "total"] for who in class_] == [9.0, 5.0, 9.0], "before the penalty"


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_honest_work_gets_nbgraders_marks_but_where_nbgrader_is_unjust(tmp_path: Path) -> None:
    class_ = {
        student(each): HandIn(each.file(), A_DAY_LATE if at % 5 == 0 else IN_TIME) for at, each in enumerate(HONEST)
    }
    theirs = by_nbgrader(tmp_path, LAB, source(), class_, copies=3)
    ours = by_labkit(tmp_path, {LAB: (source(), class_)})
    scores = {name: (theirs[name, LAB, "total"], ours[name, LAB, "total"]) for name in DIFFERENCES}
    assert differences(theirs, ours) == expected(scores)
    for at, each in enumerate(HONEST):
        assert ours[student(each), LAB, "total"] == each.deserved
        assert (ours[student(each), LAB, "late"] or 0.0) == (min(2.0, each.deserved) if at % 5 == 0 else 0.0)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_every_labs_solution_and_half_of_it_get_nbgraders_marks(tmp_path: Path) -> None:
    labs = {name: of_a_lab(read_lab(ROOT, name)) for name in lab_names(ROOT)}
    with ThreadPoolExecutor(3) as pool:
        graded = pool.map(lambda name: by_nbgrader(tmp_path / name, name, *labs[name]), labs)
        theirs = {key: value for rows in graded for key, value in rows.items()}
    ours = by_labkit(tmp_path, labs)
    assert differences(theirs, ours) == {}
    assert {ours["solved", name, "total"] for name in labs} == {100.0}
    assert all(0 < ours["half", name, "total"] < 100 for name in labs)
