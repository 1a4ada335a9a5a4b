"""The build's findings as a whole: none for a correct lab, all at once for a wrong one, and paired regions."""

from __future__ import annotations

import pytest

from mlsys_grading.build.markers import HIDDEN, SOLUTION, regions, without
from mlsys_labkit._frontends.cli import main
from tests.grading.course import TEST_LINE, Course


def test_the_tiny_lab_is_clean(course: Course) -> None:
    assert course.findings() == []


def test_all_findings_come_at_once_in_the_order_of_lines(course: Course, capsys: pytest.CaptureFixture[str]) -> None:
    course.edit(course.source, "seed = 0", "sead = 0")
    course.edit(course.source, '"points": 50', '"points": 49')
    course.edit(course.source, TEST_LINE, f"{TEST_LINE}\nimport tracemalloc")
    assert main(["build", "--root", str(course.root)]) == 1
    said = capsys.readouterr().err.splitlines()
    assert [line.partition(": ")[2].partition(":")[0] for line in said[:-1]] == ["points", "parameters", "rule 4"]
    assert said[-1].startswith("labkit build: 3 to mend")
    assert not course.student.exists()


def test_regions_pair_up() -> None:
    source = "a\n### BEGIN SOLUTION\nb\nc\n### END SOLUTION\n### BEGIN HIDDEN TESTS\n### END HIDDEN TESTS"
    found, wrong = regions(source)
    assert [(r.what, r.lines(source)) for r in found] == [(SOLUTION, ["b", "c"]), (HIDDEN, [])]
    assert not wrong
    assert without(source, HIDDEN).split("\n") == source.split("\n")
    assert without(source, SOLUTION).split("\n")[1:5] == ["### BEGIN SOLUTION", "", "", "### END SOLUTION"]
