"""Tests of feedback and notebooks written again after people have marked, and of the files beside a page."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from nbgrader.api import Gradebook

from mlsys_grading.grade.refresh_feedback import rewrite
from mlsys_labkit._frontends.cli import main
from mlsys_labkit.errors import LabkitError
from tests.grading.gradebook_helpers import LAB, SOURCE, answered

pytestmark = [
    pytest.mark.usefixtures("sandbox_allowed"),
    pytest.mark.xdist_group("grade"),
]
NOTEBOOK = json.loads(json.dumps(SOURCE).replace("float(4 * (halve(2) == 1) / 2)", "assert halve(2) == 1"))
RIGHT = {"double": "def double(x):\n    return 2 * x", "halve": "def halve(x):\n    return x / 2", "why": "Because."}
RECEIPT = {"timestamp.txt": "2030-01-31 12:00:00.000000 UTC", "submission_secret.txt": "ab" * 64}


def points(page: Path) -> str:
    """Return the text of a feedback page, without tags, styles and scripts."""
    return " ".join(re.sub(r"<(style|script).*?</\1>|<[^>]*>", " ", page.read_text(), flags=re.DOTALL).split())


def test_rewritten_feedback_has_checksum_and_manual_marks(tmp_path: Path) -> None:
    folder, feedback = tmp_path / "submitted" / "ada" / LAB, tmp_path / "feedback" / "ada" / LAB
    folder.mkdir(parents=True)
    (folder / f"{LAB}.ipynb").write_text(json.dumps(answered(RIGHT, NOTEBOOK)))
    for name, text in RECEIPT.items():
        (folder / name).write_text(text)
    (tmp_path / "source" / LAB).mkdir(parents=True)
    (tmp_path / "source" / LAB / f"{LAB}.ipynb").write_text(json.dumps(NOTEBOOK))
    assert main(["grade", LAB, "--course", str(tmp_path), "--jobs", "1"]) == 0
    assert {name: (feedback / name).read_text() for name in RECEIPT} == RECEIPT
    assert "9 of 27 points" in points(feedback / f"{LAB}.html")

    with Gradebook(f"sqlite:///{tmp_path / 'gradebook.db'}") as book:
        book.find_grade("why", LAB, LAB, "ada").manual_score = 4
        book.db.commit()
    assert rewrite(tmp_path, LAB) == 1
    assert "13 of 27 points" in points(feedback / f"{LAB}.html")

    (folder / "timestamp.txt").write_text("2030-01-31 13:00:00.000000 UTC")  # handed in again, and not yet graded
    assert rewrite(tmp_path, LAB, "ada") == 0
    with pytest.raises(LabkitError, match="bob has not handed in"):
        rewrite(tmp_path, LAB, "bob")
