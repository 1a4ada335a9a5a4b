"""Tests of the cells that rely on claims of the student's process: found by the probes they call, tagged, and few."""

from __future__ import annotations

import json

import pytest

from mlsys_grading.build.claims import MOST_POINTS, check_claims, claims_of
from mlsys_grading.build.notebook import source_notebook
from mlsys_grading.examine.plan import make_plan
from mlsys_grading.examine.run import _mark
from mlsys_grading.lab import lab_names, read_lab
from mlsys_grading.result import Result
from mlsys_labkit._base import probes
from tests.conftest import ROOT
from tests.grading.course import LAB, TEST_LINE, Course

HEAD = '"grade_id": "scaled_test_empty", "locked": true, "points": 10, "schema_version": 3, "solution": false, '
HEAD += '"task": false}'
SHARES = "lk.checks.expect_copy(scaled(np.ones(2), 2), np.ones(2))"
CLAIMS = [
    (SHARES, "where an array's memory lies"),
    ("lk.checks.expect_shares_memory(np.ones(2), np.ones(2))", "where an array's memory lies"),
    ("from mlsys_labkit.checks import expect_copy as copied\ncopied(np.ones(2), np.ones(2))", "memory lies"),
    ("_ = lk.count_work(scaled, np.ones(2), 2)", "count_work"),
    ("_ = lk.trace_accesses(scaled, np.ones(2), 2)", "trace_accesses"),
    ("_ = lk.checks.run_ranks(scaled, 2, [1.0], 2, memory=True)", "a rank says of its memory"),
]


@pytest.mark.parametrize(("line", "told"), CLAIMS)
def test_cell_with_a_claim_must_be_tagged(course: Course, line: str, told: str) -> None:
    course.edit(course.source, TEST_LINE, f"{TEST_LINE}\n{line}")
    lab = read_lab(course.root, LAB)
    assert list(claims_of(lab)) == ["scaled_test_empty"]
    (untagged, too_many) = check_claims(lab)
    assert told in untagged.problem
    assert "10 points rest on claims" in too_many.problem
    course.edit(course.source, HEAD, HEAD.replace("10", "5") + ' tags=["claim"]')
    assert list(check_claims(read_lab(course.root, LAB))) == []


def test_claims_are_found_inside_the_labs_helpers(course: Course) -> None:
    course.edit(course.source, "    y: float\n", f"    y: float\n\n\ndef expect_all(x):\n    {SHARES}\n")
    course.edit(course.source, TEST_LINE, f"{TEST_LINE}\nexpect_all(3)")
    assert list(claims_of(read_lab(course.root, LAB))) == ["scaled_test_empty"]


@pytest.mark.parametrize(
    "line", ["_ = scaled([1], 2)", "_ = lk.checks.run_ranks(scaled, 2, [1.0], 2)", "expect_all = 3"]
)
def test_cells_without_probes_have_no_claims(course: Course, line: str) -> None:
    course.edit(course.source, TEST_LINE, f"{TEST_LINE}\n{line}")
    assert claims_of(read_lab(course.root, LAB)) == {}
    course.edit(course.source, HEAD, HEAD + ' tags=["claim"]')
    (finding,) = check_claims(read_lab(course.root, LAB))
    assert "rests on no claim" in finding.problem


def test_probes_counted_outside_are_no_claims(course: Course, monkeypatch: pytest.MonkeyPatch) -> None:
    course.edit(course.source, TEST_LINE, f"{TEST_LINE}\n_ = lk.count_work(scaled, np.ones(2), 2)")
    monkeypatch.setitem(probes._witnesses, "mlsys_labkit.work.count.count_work", "somebody who counts")
    from mlsys_grading.build import claims

    claims._claim.cache_clear()
    try:
        assert claims_of(read_lab(course.root, LAB)) == {}
    finally:
        claims._claim.cache_clear()


def test_marks_of_claim_cells_are_tagged(course: Course) -> None:
    course.edit(course.source, HEAD, HEAD + ' tags=["claim"]')
    cells = json.loads(json.dumps(source_notebook(read_lab(course.root, LAB))))["cells"]
    tests = [cell for cell in make_plan(cells, cells).examiner if cell.kind == "test"]
    marks = tuple(_mark(cell, {"passed": True, "error": None, "printed": "", "seconds": 0.0}) for cell in tests)
    result = Result.from_json(Result("job", LAB, "ada", marks).to_json())
    assert [mark.name for mark in result.marks if mark.claim] == ["scaled_test_empty"]
    assert len(result.marks) == 3


@pytest.mark.parametrize("name", lab_names(ROOT))
def test_labs_have_few_points_on_claims(name: str) -> None:
    lab = read_lab(ROOT, name)
    claims = claims_of(lab)
    assert sum(cell.points for cell in lab.cells if cell.grade_id in claims) <= MOST_POINTS
