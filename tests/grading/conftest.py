"""Fixtures of the graders' tests."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.grading.course import FIXTURE, Course
from tests.grading.nbgrader_cli import NbgraderCourse


@pytest.fixture
def course(tmp_path: Path) -> Course:
    """A fresh copy of the tiny checkout."""
    return Course(Path(shutil.copytree(FIXTURE, tmp_path / "course")))


@pytest.fixture
def nbgrader(tmp_path: Path) -> NbgraderCourse:
    """An empty nbgrader course."""
    return NbgraderCourse(tmp_path / "nbgrader")
