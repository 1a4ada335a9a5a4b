"""Rules on what crosses, compared with real verdicts: there is a rule exactly where shell and graders differ."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from mlsys_grading.build.crossing.check import RULES, UNLOCKED, check_crossing
from mlsys_grading.build.rules.check import check_tests
from mlsys_grading.examine.plan import make_plan
from mlsys_grading.examine.run import examine_submission
from mlsys_grading.fork_server.client import ForkServer
from mlsys_grading.lab import Cell, Lab
from mlsys_grading.sandbox.confine import Sandbox, refusal
from mlsys_grading.time_limits import TimeLimits
from mlsys_labkit._frontends.cli import main
from tests.grading.course import TEST_LINE, Course
from tests.grading.crossing_idioms import IDIOMS, LOCKED, Idiom

pytestmark = pytest.mark.xdist_group("crossing")
MODULES = (
    "numpy",
    "torch",
    "torch.testing",
    "IPython",
    "pytest",
    "unittest.mock",
    "torch._dynamo",
    "mlsys_labkit.checks",
    "mlsys_labkit.work.count",
    "mlsys_labkit.memory",
    "mlsys_labkit.errors",
    "mlsys_grading.examine.examiner",
    "mlsys_grading.boundary.student",
)
PLAIN = """
import json, sys
from mlsys_grading.shell import CellSource, Shell
shell, errors = Shell(), {}
for index, (name, source) in enumerate(json.load(open(sys.argv[1]))):
    errors[name] = shell.run(CellSource(index, name, source))["error"]
json.dump(errors, open(sys.argv[2], "w"))
"""


def cell(source: str, **nbgrader: Any) -> dict[str, Any]:
    return {"cell_type": "code", "source": source, "metadata": {"nbgrader": nbgrader}}


def notebook() -> list[dict[str, Any]]:
    cells = [cell(LOCKED, grade_id="setup", locked=True)]
    for idiom in IDIOMS:
        cells.append(cell(idiom.solution, grade_id=idiom.name, solution=True))
        cells.append(cell(idiom.test, grade_id=f"{idiom.name} test", grade=True, locked=True, points=1))
    return cells


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    """Return, by cell name, the error that a cell raised in one shell of its own."""
    folder = tmp_path_factory.mktemp("plain")
    cells = [(each["metadata"]["nbgrader"]["grade_id"], each["source"]) for each in notebook()]
    (folder / "cells.json").write_text(json.dumps(cells))
    subprocess.run([sys.executable, "-c", PLAIN, "cells.json", "errors.json"], cwd=folder, check=True)
    return json.loads((folder / "errors.json").read_text())  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def graded(fork_server: Callable[[Sequence[str]], ForkServer]) -> Mapping[str, str]:
    """Return, by test cell, the reason why it failed with the graders; "" if it passed."""
    if reason := refusal():
        pytest.skip(f"this machine allows no sandbox: {reason}")
    plan = make_plan(notebook(), notebook())
    with fork_server(MODULES) as server:
        examined = examine_submission(server, plan, time_limits=TimeLimits(20, 40, 500), sandbox=Sandbox())
    assert not examined.trouble
    return {verdict.name: "" if verdict.passed else verdict.error or "no reason" for verdict in examined.marks}


def found(idiom: Idiom) -> set[str]:
    cells = (
        Cell(0, "code", LOCKED, 1, {"nbgrader": {"grade_id": "setup", "locked": True}}),
        Cell(1, "code", idiom.solution, 20, {"nbgrader": {"grade_id": "task", "solution": True}}),
        Cell(2, "code", idiom.test, 40, {"nbgrader": {"grade_id": "task_test", "grade": True, "points": 1}}),
    )
    lab = Lab(Path("/labs"), "lab99_idioms", cells)
    rules = {finding.rule for finding in (*check_crossing(lab), *check_tests(lab))}
    return rules - {"rule 5", "rule 7"}  # unseeded and shown values cross without a loss


@pytest.mark.parametrize("idiom", IDIOMS, ids=lambda idiom: idiom.name)
def test_a_rule_exists_where_the_verdict_differs(
    idiom: Idiom, plain: Mapping[str, Any], graded: Mapping[str, str]
) -> None:
    assert plain[idiom.name] is None
    assert plain[f"{idiom.name} test"] is None
    differs = bool(graded[f"{idiom.name} test"])
    assert differs == (idiom.rule != "" and not idiom.rule.startswith("~")), graded[f"{idiom.name} test"]


@pytest.mark.parametrize("idiom", IDIOMS, ids=lambda idiom: idiom.name)
def test_build_reports_idioms_whose_verdict_differs(idiom: Idiom) -> None:
    expected = idiom.rule.removeprefix("~").replace("rule ", "rule").split() if idiom.rule != "unseen" else []
    assert {each.replace("rule ", "rule") for each in found(idiom)} == set(expected)


def test_every_rule_stands_for_an_idiom_that_was_seen_to_differ() -> None:
    seen = {code for idiom in IDIOMS if not idiom.rule.startswith("~") for code in idiom.rule.split()}
    assert set(RULES) - seen == set()


BROKEN = "t = Tally()\nassert t.counts is t.counts\nt.counts.update(a=1)\nassert t is not None"


def test_an_error_stops_the_build_and_a_warning_does_not(course: Course, capsys: pytest.CaptureFixture[str]) -> None:
    line = course.edit(course.source, TEST_LINE, f"{TEST_LINE}\n{BROKEN}")
    assert main(["build", "--root", str(course.root)]) == 1
    said = capsys.readouterr().err.splitlines()
    assert [each.partition(": ")[0].rpartition(":")[2] for each in said[:2]] == [str(line + 2), str(line + 3)]
    assert ": warning: LK201: " in said[0]
    assert ": LK202: " in said[1]
    assert said[2].startswith("labkit build: 1 to mend")
    course.edit(course.source, "\nt.counts.update(a=1)", "")
    assert main(["build", "--root", str(course.root)]) == 0
    assert "warning: LK201" in capsys.readouterr().err


def test_reason_comment_permits_an_idiom(course: Course) -> None:
    allow = "# labkit: allow LK202 - the copy is what this test is about"
    course.edit(course.source, TEST_LINE, f"{TEST_LINE}\n{BROKEN}\n{allow}")
    assert [finding.rule for finding in course.findings()] == ["LK201"]


@pytest.mark.parametrize(
    ("allow", "problem"),
    [("# labkit: allow LK204 - there is no such thing here", "does not occur"), ("# labkit: allow LK204", "reason")],
)
def test_a_comment_without_use_or_reason_is_an_error(course: Course, allow: str, problem: str) -> None:
    course.edit(course.source, TEST_LINE, f"{TEST_LINE}\n{allow}")
    findings = course.findings()
    assert {finding.rule for finding in findings} == {"LK204"}
    assert any(problem in finding.problem for finding in findings)


def test_test_cell_may_not_use_names_of_unlocked_cells() -> None:
    def lab(**nbgrader: Any) -> Lab:
        cells = (
            Cell(0, "code", "import math", 1, {"nbgrader": {"grade_id": "setup", "locked": True}}),
            Cell(1, "code", "least = math.pi", 10, {"nbgrader": nbgrader} if nbgrader else {}),
            Cell(2, "code", "def f():\n    return 4", 20, {"nbgrader": {"grade_id": "f", "solution": True}}),
            Cell(3, "code", "assert f() > least", 30, {"nbgrader": {"grade_id": "f_test", "grade": True, "points": 1}}),
        )
        return Lab(Path("/labs"), "lab99_names", cells)

    assert [each.rule for each in check_crossing(lab())] == [UNLOCKED]
    assert not list(check_crossing(lab(grade_id="facts", locked=True)))
