"""``labkit grade`` of a course with several labs, and without a sandbox: its output, and its files."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from pathlib import Path

import pytest

from mlsys_labkit._frontends.cli import main
from tests.grading.gradebook_helpers import LAB
from tests.grading.test_grade import RIGHT, SOURCE, course, grade, hand_in, scores

pytestmark = [
    pytest.mark.usefixtures("sandbox_allowed"),
    pytest.mark.xdist_group("grade"),
]
BROKEN, LONELY = "lab92_broken", "lab93_lonely"
READS = "factor = float(open('factor.txt').read())\ndef double(x):\n    return factor * x"


def test_all_labs_of_a_course_whatever_one_of_them_is_like(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = course(tmp_path / "class")
    hand_in(root, "ada", RIGHT)
    for lab in (BROKEN, LONELY):
        (root / "source" / lab).mkdir()
        (root / "source" / lab / f"{lab}.ipynb").write_text('{"cells": [' if lab == BROKEN else json.dumps(SOURCE))
    (root / "submitted" / "ada" / BROKEN).mkdir()
    shutil.copy(
        root / "submitted" / "ada" / LAB / f"{LAB}.ipynb", root / "submitted" / "ada" / BROKEN / f"{BROKEN}.ipynb"
    )
    everything = ["grade", "--all", "--course", str(root), "--jobs", "1"]
    assert main(everything) == 1  # a submission needs attention
    said = capsys.readouterr()
    assert f"{BROKEN}.ipynb" in said.err
    assert f"labkit build {BROKEN}" in said.err
    assert said.err.count("\n") == 1
    assert LONELY not in said.out + said.err  # without submissions
    assert scores(root) == {"ada": 9.0}

    assert main(["grade", BROKEN, "--course", str(root)]) == 2  # no lab could be graded
    assert main(["grade", LONELY, "--course", str(root)]) == 0
    assert f"{LONELY}: 0 submissions" in capsys.readouterr().out
    shutil.rmtree(root / "submitted" / "ada" / LAB)
    assert main(everything) == 2


def test_without_a_sandbox_is_said_and_written_down_for_each_submission(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = course(tmp_path / "class")
    for student in ("ada", "bob"):
        hand_in(root, student, RIGHT | {"double": READS})
        (root / "submitted" / student / LAB / "factor.txt").write_text("2")
    assert grade(root, "--student", "bob") == 0
    assert "WARNING" not in capsys.readouterr().err
    here = Path.cwd(), sorted(os.listdir(root / "submitted" / "ada" / LAB))
    assert grade(root, "--student", "ada", "--no-sandbox") == 0
    assert "WARNING: --no-sandbox: students' code runs with your rights" in capsys.readouterr().err
    assert (Path.cwd(), sorted(os.listdir(root / "submitted" / "ada" / LAB))) == here
    assert scores(root) == {"ada": 9.0, "bob": 9.0}
    with sqlite3.connect(root / "gradebook.db") as book:
        query = (
            "SELECT s.student_id, g.sandbox FROM mlsys_graded g JOIN submitted_notebook n ON n.id = g.notebook_id "
            "JOIN submitted_assignment s ON s.id = n.assignment_id"
        )
        assert dict(book.execute(query)) == {"ada": 0, "bob": 1}
    for student, sandboxed in (("ada", False), ("bob", True)):
        graded = json.loads((root / "autograded" / student / LAB / f"{LAB}.ipynb").read_text())
        assert graded["metadata"]["mlsys_grading"]["sandbox"] is sandboxed
        page = (root / "feedback" / student / LAB / f"{LAB}.html").read_text()
        assert ("Graded without a sandbox" in page) is not sandboxed


WAIT = "import time\n"
HANGS = {
    "cell": {"double": WAIT + "time.sleep(900)\n" + RIGHT["double"]},
    "call": {"double": WAIT + "def double(x):\n    time.sleep(900)"},
    "input": {"double": "def double(x):\n    return input('?')"},
    "deaf": {"double": WAIT + "def double(x):\n    while True:\n        try: time.sleep(900)\n        except: pass"},
    "atexit": {"double": WAIT + "import atexit\natexit.register(time.sleep, 900)\n" + RIGHT["double"]},
    "import": {"double": "import lingers\n" + RIGHT["double"]},
}


def test_hanging_cell_loses_only_its_own_task(tmp_path: Path) -> None:
    root = course(tmp_path / "class")
    for name, answers in HANGS.items():
        hand_in(root, name, RIGHT | answers)
        (root / "submitted" / name / LAB / "lingers.py").write_text(WAIT + "time.sleep(900)")
    limits = ("call_seconds=1", "cell_seconds=3", "wall_seconds=60")
    assert grade(root, *(word for limit in limits for word in ("--limit", limit))) == 0
    assert scores(root) == dict.fromkeys(HANGS, 4.0) | {"atexit": 9.0}
