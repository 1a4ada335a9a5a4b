"""Every lab's own solution, under the graders: full marks, or no mark of that lab would mean anything."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from mlsys_grading.build.notebook import source_notebook
from mlsys_grading.grade.bounds import Bounds
from mlsys_grading.grade.course import CourseFolder, LabSource
from mlsys_grading.grade.engine import GradingEngine, open_engine
from mlsys_grading.grade.reference import learn
from mlsys_grading.grade.store import Store
from mlsys_grading.lab import lab_names, read_lab
from tests.conftest import ROOT

pytestmark = [
    pytest.mark.usefixtures("sandbox_allowed"),
    pytest.mark.places,  # as long as a lab takes
    pytest.mark.timeout(1200),
]
# One lab for each kind of work that graders do: measured memory, CUDA, Triton, ranks.
OFTEN = ("lab02_pca", "lab03_cuda_matmul", "lab05_triton", "lab07_parallelism")
LABS = [pytest.param(name, marks=[] if name in OFTEN else pytest.mark.soak) for name in lab_names(ROOT)]


@pytest.fixture(scope="module")
def engine() -> Iterator[GradingEngine]:
    with ExitStack() as stack:
        yield stack.enter_context(open_engine("local", 1))


def learned(
    engine: GradingEngine, notebook: dict[str, Any], name: str, course: Path
) -> tuple[LabSource, Bounds, dict[str, list[str]]]:
    """Grade a lab's solution in a new course folder, and require full marks: its source, bounds and contract."""
    (course / "submitted").mkdir()
    (course / "source" / name).mkdir(parents=True)
    (course / "source" / name / f"{name}.ipynb").write_text(json.dumps(notebook), encoding="utf-8")
    source = CourseFolder.at(course).source(name)
    bounds = Bounds(sandbox=True).of(source.notebook, {})
    return source, bounds, learn(engine, source, bounds, Store(course))


@pytest.mark.parametrize("name", LABS)
def test_solution_gets_full_marks(name: str, engine: GradingEngine, tmp_path: Path) -> None:
    learned(engine, source_notebook(read_lab(ROOT, name)), name, tmp_path)
