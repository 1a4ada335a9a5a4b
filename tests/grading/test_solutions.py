"""Every lab's own solution, under the graders: full marks, or no mark of that lab would mean anything."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from mlsys_grading.build.notebook import source_notebook
from mlsys_grading.grade.bounds import Bounds
from mlsys_grading.grade.course import CourseFolder
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


@pytest.mark.parametrize("name", LABS)
def test_solution_gets_full_marks(name: str, engine: GradingEngine, tmp_path: Path) -> None:
    (tmp_path / "submitted").mkdir()
    (tmp_path / "source" / name).mkdir(parents=True)
    notebook = source_notebook(read_lab(ROOT, name))
    (tmp_path / "source" / name / f"{name}.ipynb").write_text(json.dumps(notebook), encoding="utf-8")
    source = CourseFolder.at(tmp_path).source(name)
    learn(engine, source, Bounds(sandbox=True).of(source.notebook, {}), Store(tmp_path))
