"""Hidden tests stay hidden in every lab: no line of them reaches a file that students get."""

from __future__ import annotations

import functools
import html
import json
import re
from pathlib import Path
from typing import Any

import pytest

from mlsys_grading.analysis.explain import explain
from mlsys_grading.analysis.pages import report_page
from mlsys_grading.analysis.report import class_report
from mlsys_grading.build import markers
from mlsys_grading.build.notebook import source_notebook, student_notebook
from mlsys_grading.export.moodle import to_moodle
from mlsys_grading.gradebook.counted_scores import CellStanding, Standing
from mlsys_grading.gradebook.feedback import feedback_page
from mlsys_grading.gradebook.registered import RegisteredLab, register
from mlsys_grading.gradebook.scores import questions_of, score_of
from mlsys_grading.gradebook.submission import match
from mlsys_grading.lab import Lab, lab_names, read_lab
from mlsys_grading.result import CellMark, Result

ROOT = Path(__file__).parents[2]
LEAST_CHARACTERS = 12  # a shorter line may occur in our own texts by chance


@functools.cache
def read(name: str) -> tuple[Lab, list[Any], set[str]]:
    """Return a lab, its cells as students get them, and the lines between the markers that are not in those."""
    lab = read_lab(ROOT, name)
    cells = json.loads(json.dumps(student_notebook(lab)))["cells"]
    visible = "\n".join(str(cell["source"]) for cell in cells)
    lines = {text.strip() for cell in lab.cells for _, text in markers.cut_text(cell.source, markers.HIDDEN)}
    return lab, cells, {line for line in lines if len(line) >= LEAST_CHARACTERS and line not in visible}


def leaking(lab: Lab, registered: RegisteredLab, student: str, secret: str, restarts: int) -> Result:
    """Build a result whose errors, kinds and prints contain ``secret`` from the first hidden test on."""
    marks, leaks, failed = [], False, {}
    for cell in registered.cells:
        leaks = leaks or cell.hidden
        if cell.kind == "test":
            said = secret if leaks else "expected 1 actual 2"
            marks.append(CellMark(cell.name, 0.0, cell.max_score, f"CheckError: {said}", ("CheckError", said), said))
        elif leaks or restarts:
            failed[cell.name] = f"{secret.splitlines()[0]}: {secret}"
    return Result("job", lab.name, student, tuple(marks), failed, restarts=restarts)


@pytest.mark.parametrize(("name", "restarts"), [(lab_names(ROOT)[0], 0), *((name, 2) for name in lab_names(ROOT))])
def test_no_hidden_line_reaches_students(name: str, restarts: int) -> None:
    lab, cells, secrets = read(name)
    assert len(secrets) > 5, "there is something to hide"
    registered = register(lab.name, source_notebook(lab))
    secret = "\n".join(sorted(secrets))
    result = leaking(lab, registered, "ada", secret, restarts)
    own = {"cell_type": "code", "metadata": {}, "source": "pass"}
    submission = match(registered, {"cells": [*cells, own]})
    standing = Standing({cell.name: CellStanding(0.0) for cell in registered.cells}, 0.0, 0.0)
    score = score_of(result, questions_of(registered))
    assert score is not None
    report = class_report(lab, [result], {"ada": cells})
    told = {
        "feedback": feedback_page(registered, submission, result, standing),
        "Moodle": to_moodle([score]).sheet.to_csv(),
        "Moodle by question": to_moodle([score], per_question=True).sheet.to_csv(),
        "report": report_page(report),
        "report's data": json.dumps(report.to_json()),
    }
    for where, text in told.items():
        plain = _squeezed(html.unescape(text))
        assert [line for line in secrets if _squeezed(line) in plain] == [], where
    quoted = _squeezed(str(explain(lab, result, cells, registered.tests[-1].name)))
    assert any(_squeezed(line) in quoted for line in secrets), "and the instructor is told"


@pytest.mark.parametrize("name", lab_names(ROOT))
def test_no_hidden_line_is_in_what_was_released(name: str) -> None:
    secrets = {_squeezed(line) for line in read(name)[2]}
    for path in sorted((ROOT / "labs" / name).rglob("*")):
        if path.is_file():
            text = path.read_bytes().decode("utf-8", "replace")
            if path.suffix == ".ipynb":
                text = "\n".join("".join(cell["source"]) for cell in json.loads(text)["cells"])
            plain = _squeezed(text)
            assert [line for line in secrets if line in plain] == [], path.name


def _squeezed(text: str) -> str:
    """Remove white space and quotes, which pages and CSV files change."""
    return re.sub(r"[\s\"'\\]+", "", text)
