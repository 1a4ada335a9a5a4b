"""``labkit regrade``: unchanged submissions are graded again, and every change of marks is printed and stored."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st
from nbgrader.api import Gradebook

from mlsys_grading.grade.difference import Differences, MarkChange, changed_tasks, tasks_of
from mlsys_labkit._frontends.cli import main
from tests.grading.gradebook_helpers import LAB, lab, rows
from tests.grading.test_grade import RIGHT, SOURCE, course, grade, hand_in, scores

pytestmark = [
    pytest.mark.usefixtures("sandbox_allowed"),
    pytest.mark.xdist_group("grade"),
]
HALF = RIGHT | {"double": "def double(x):\n    return min(2 * x, 8)"}  # wrong only for the hidden test's input


def regrade(root: Path, *options: str) -> int:
    return main(["regrade", LAB, "--course", str(root), "--jobs", "1", *options])


def files(root: Path, suffix: str) -> list[Path]:
    return sorted((root / "regraded").glob(f"{LAB}-*{suffix}"))


def test_regrade_after_a_corrected_test_lists_each_change(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = course(tmp_path / "class")
    (root / "nbgrader_config.py").write_text("c = get_config()\n")
    for student, answers in {"ada": RIGHT, "bob": HALF, "cyd": HALF, "=dan": HALF}.items():
        hand_in(root, student, answers)
    assert grade(root) == 0
    assert scores(root) == {"ada": 9.0, "bob": 7.0, "cyd": 7.0, "=dan": 7.0}
    assert not (root / "regraded").exists(), "a first grade differs from nothing"
    with Gradebook(f"sqlite:///{root / 'gradebook.db'}") as book:
        marked = book.find_grade("double_more", LAB, LAB, "cyd")
        marked.manual_score, marked.extra_credit, marked.needs_manual_grade = 1.5, 0.25, False
        book.find_comment("why", LAB, LAB, "cyd").manual_comment = "well said"
        book.db.commit()
    before = rows(root / "gradebook.db")

    capsys.readouterr()
    assert regrade(root) == 0
    said = capsys.readouterr().out
    assert "4 graded" in said, "also what has not changed"
    assert "changed:" not in said
    assert rows(root / "gradebook.db") == before
    assert not files(root, ".csv")
    assert regrade(root, "--changed-only") == 0
    assert "4 unchanged" in capsys.readouterr().out
    assert regrade(root, "--student", "ada") == 0
    assert "1 graded" in capsys.readouterr().out

    mended = json.dumps(SOURCE).replace(
        "assert double(hidden_input_8317) == 16", "assert double(hidden_input_8317) >= 8"
    )
    (root / "source" / LAB / f"{LAB}.ipynb").write_text(mended)
    assert grade(root) == 0, "grade tells the difference, too"
    said = capsys.readouterr().out
    for line in (
        "marks of 3 submissions changed: 2 up, 0 down",  # a person's mark for cyd stands
        "  bob  7 -> 9  double 3 -> 5",
        "  cyd  8.75 -> 8.75  double 3 -> 5",
        "  double: +6 points, 3 submissions",
    ):
        assert line in said.replace("7 -> 7  double", "7 -> 7  double"), line
    (path,) = files(root, ".csv")
    found = list(csv.DictReader(path.open()))
    assert [tuple(each.values()) for each in found] == [
        ("'=dan", "double", "3.0", "5.0", "7.0", "9.0"),
        ("bob", "double", "3.0", "5.0", "7.0", "9.0"),
        ("cyd", "double", "3.0", "5.0", "8.75", "8.75"),
    ]
    kept = json.loads(files(root, ".json")[0].read_text())
    assert kept["lab"] == LAB
    assert kept["graded"] == 4
    assert {each["student"]: (each["score"], each["tasks"]) for each in kept["changed"]} == {
        "=dan": ([7.0, 9.0], {"double": [3.0, 5.0]}),
        "bob": ([7.0, 9.0], {"double": [3.0, 5.0]}),
        "cyd": ([8.75, 8.75], {"double": [3.0, 5.0]}),
    }
    with Gradebook(f"sqlite:///{root / 'gradebook.db'}") as book:
        marked = book.find_grade("double_more", LAB, LAB, "cyd")
        assert (marked.auto_score, marked.manual_score, marked.extra_credit) == (2.0, 1.5, 0.25)
        assert marked.needs_manual_grade, "another look at what a person marked before the machine changed its mind"
        assert book.find_comment("why", LAB, LAB, "cyd").manual_comment == "well said"


@given(
    st.dictionaries(
        st.sampled_from(["double_test", "double_more", "halve_test", "why", "gone"]),
        st.sampled_from([0.0, 1.0, 2.5, None]),
    ),
    st.dictionaries(
        st.sampled_from(["double_test", "double_more", "halve_test", "why"]), st.sampled_from([0.0, 1.0, 2.5, None])
    ),
)
def test_changed_tasks_sum_the_changes_of_their_cells(before: dict[str, Any], after: dict[str, Any]) -> None:
    tasks = tasks_of(lab())
    assert {name: tasks[name] for name in ("double_test", "double_more", "halve_test", "why", "look")} == {
        "double_test": "double",
        "double_more": "double",
        "halve_test": "halve",
        "why": "why",
        "look": "look",
    }
    first, second = changed_tasks(tasks, before, after)
    names = {*before, *after}
    assert set(first) == set(second) == {tasks.get(n, n) for n in names if before.get(n) != after.get(n)}
    for task in first:
        cells = [name for name in names if tasks.get(name, name) == task]
        for side, points in ((before, first), (after, second)):
            given = [side[name] for name in cells if side.get(name) is not None]
            assert points[task] == (sum(given) if given else None)


def test_killed_regrade_keeps_the_changes_so_far(tmp_path: Path) -> None:
    differences = Differences(tmp_path, LAB)
    assert list(differences.close(0)) == []
    assert not (tmp_path / "regraded").exists()
    differences.add(MarkChange("ada", {"f": 1.0}, {"f": None}, 3.0, 2.0))
    differences.add(MarkChange("bob", {}, {}, 3.0, 2.0))  # a later timestamp with the same marks
    (path,) = files(tmp_path, ".csv")
    assert path.read_text().splitlines()[1:] == ["ada,f,1.0,,3.0,2.0", "bob,,,,3.0,2.0"]
    said = list(differences.close(2))
    assert said[0].endswith("marks of 2 submissions changed: 0 up, 2 down")
    assert "  ada  3 -> 2  f 1 -> none" in said
    assert "  bob  3 -> 2" in said
