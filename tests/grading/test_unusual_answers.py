"""Correct but unusual answers: the graders give each cell the verdict that a plain shell gives."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from mlsys_grading.build.notebook import source_notebook
from mlsys_grading.examine.plan import make_plan
from mlsys_grading.examine.run import examine_submission
from mlsys_grading.fork_server.client import ForkServer
from mlsys_grading.grade.modules import modules_of
from mlsys_grading.lab import find_root, read_lab
from mlsys_grading.sandbox.confine import Sandbox, refusal
from mlsys_grading.sandbox.limits import SandboxLimits
from mlsys_grading.time_limits import TimeLimits
from tests.grading.unusual_answers import UNUSUAL

pytestmark = [pytest.mark.soak, pytest.mark.xdist_group("unusual")]
TIME_LIMITS = TimeLimits(30, 90, 900)
PLAIN = """
import json, sys
from mlsys_grading.shell import CellSource, Shell
shell, errors = Shell(), {}
for index, (name, source) in enumerate(json.load(open(sys.argv[1]))):
    errors[name] = shell.run(CellSource(index, name, source))["error"]
json.dump(errors, open(sys.argv[2], "w"))
"""


def name_of(cell: dict[str, Any]) -> str:
    return str(cell["metadata"].get("nbgrader", {}).get("grade_id", ""))


def in_a_shell(cells: list[dict[str, Any]], folder: Path) -> dict[str, str]:
    """Return, by cell name, the error that a cell raised in a shell of its own; "" for none."""
    code = [
        (name_of(each) or f"cell {at}", each["source"]) for at, each in enumerate(cells) if each["cell_type"] == "code"
    ]
    (folder / "cells.json").write_text(json.dumps(code))
    subprocess.run([sys.executable, "-c", PLAIN, "cells.json", "errors.json"], cwd=folder, check=True)
    found = json.loads((folder / "errors.json").read_text())
    return {name: f"{error['kinds'][0]}: {error['message']}" if error else "" for name, error in found.items()}


@pytest.mark.parametrize("name", UNUSUAL)
def test_the_verdicts_are_those_of_a_shell(name: str, tmp_path: Path) -> None:
    if reason := refusal():
        pytest.skip(f"this machine allows no sandbox: {reason}")
    lab = read_lab(find_root(), name.split(":")[0])
    lab.copy_data(tmp_path)
    source = json.loads(json.dumps(source_notebook(lab)))["cells"]
    answers = {task: textwrap.dedent(text).strip() for task, text in UNUSUAL[name].items()}
    submission = [each | {"source": answers.pop(name_of(each), each["source"])} for each in source]
    assert not answers, "no such task"
    plain = in_a_shell(submission, tmp_path)
    sandbox = Sandbox(limits=SandboxLimits(file_bytes=64 << 30))
    with ForkServer(modules_of(source)) as server:
        reference = examine_submission(server, make_plan(source, source), None, TIME_LIMITS, sandbox)
        assert not reference.trouble
        plan = make_plan(source, submission)
        examined = examine_submission(server, plan, reference.contract, TIME_LIMITS, sandbox)
    assert not examined.trouble
    differ = {
        verdict.name: {"shell": plain[verdict.name], "graders": verdict.error}
        for verdict in examined.marks
        if verdict.passed == bool(plain[verdict.name])
    }
    assert not differ
    failed = {test.grade_id: plain[test.grade_id] for task in lab.tasks for test in task.tests if plain[test.grade_id]}
    assert not failed, "no honest answer: it is wrong in a shell, too"
