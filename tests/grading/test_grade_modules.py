"""Tests of the modules imported before the first submission: all probes that checks run in the student's process."""

from __future__ import annotations

import re
from pathlib import Path

import mlsys_labkit
from mlsys_grading.grade.modules import modules_of

_ROOT = Path(mlsys_labkit.__file__).parent


def test_probes_are_imported_for_a_lab_that_names_none() -> None:
    files = [path for path in _ROOT.rglob("*.py") if re.search(r"^@probe$", path.read_text("utf-8"), re.MULTILINE)]
    names = {".".join(("mlsys_labkit", *path.relative_to(_ROOT).with_suffix("").parts)) for path in files}
    assert len(names) >= 4
    assert {name.removesuffix(".__init__") for name in names} <= set(modules_of([]))
