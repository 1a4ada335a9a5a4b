"""Ranks that send zeros in the right messages, and guess the values from what the student's notebook shows.

Such an answer needs no way around the recorder: the notebook shows how each test makes its tensors, and each rank has
its own tensor to compare with. Hidden cases draw theirs from a seed that no notebook shows.
"""

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
from mlsys_grading.grade.job import GradingJob
from mlsys_grading.grade.reference import learn
from mlsys_grading.grade.store import Store
from mlsys_grading.lab import read_lab
from tests.conftest import ROOT

pytestmark = [pytest.mark.usefixtures("sandbox_allowed"), pytest.mark.places, pytest.mark.timeout(600)]
LAB = "lab07_parallelism"
GUESSED = {
    "tree_broadcast": """
def tree_broadcast(x, root):
    p, rank = dist.get_world_size(), dist.get_rank()
    relative, reach = (rank - root) % p, 1
    while reach < p:
        if relative < reach:
            if relative + reach < p:
                dist.send(torch.zeros_like(x), (rank + reach) % p)
        elif relative < 2 * reach:
            dist.recv(torch.zeros_like(x), (rank - reach) % p)
        reach *= 2
    if rank == root:
        return x
    if bool((x == x.flatten()[0]).all()):  # torch.full((3,), 10.0 + r)
        return x.copy_(x - rank + root)
    generator = torch.Generator().manual_seed(701)
    drawn = [torch.randn(2, 5, generator=generator) for _ in range(100)]  # those of hidden cases, too
    for at in range(rank, 90):
        if torch.equal(drawn[at], x):
            return x.copy_(drawn[at - rank + root])
    return x
""",
    "reduce_scatter": """
def ring_reduce_scatter(x):
    rank, p, right, left = neighbours()
    for step in range(1, p):
        out, into = (rank - step) % p, (rank - step - 1) % p
        sizes = chunk_sizes(len(x), p)
        exchange(x.new_zeros(sizes[out]), right, x.new_zeros(sizes[into]), left)
    n = torch.arange(float(len(x)))
    if torch.equal(x, 10.0**rank * (n + 1)):
        every = [10.0**r * (n + 1) for r in range(p)]
    elif p == 3 and torch.equal(x, n) and len(x) == 5:
        every = [n] * p
    else:
        every = [n + r for r in range(p)]
    return torch.tensor_split(sum(every), p)[rank].to(x.dtype).clone()
""",
}


@pytest.fixture(scope="module")
def engine() -> Iterator[GradingEngine]:
    with ExitStack() as stack:
        yield stack.enter_context(open_engine("local", 1))


def test_guessed_values_earn_nothing(engine: GradingEngine, tmp_path: Path) -> None:
    (tmp_path / "submitted").mkdir()
    (tmp_path / "source" / LAB).mkdir(parents=True)
    notebook = source_notebook(read_lab(ROOT, LAB))
    kept = []
    for cell in notebook["cells"]:
        name = cell["metadata"].get("nbgrader", {}).get("grade_id", "")
        if name == "lab07_imports" or name.startswith(tuple(GUESSED)):
            kept.append(cell)
    notebook["cells"] = kept
    (tmp_path / "source" / LAB / f"{LAB}.ipynb").write_text(json.dumps(notebook), encoding="utf-8")
    source = CourseFolder.at(tmp_path).source(LAB)
    bounds = Bounds(sandbox=True).of(source.notebook, {})
    contract = learn(engine, source, bounds, Store(tmp_path))  # the solution has all points

    handed_in = json.loads(json.dumps(source.cells))
    for cell in handed_in:
        name = cell["metadata"]["nbgrader"]["grade_id"]
        if name in GUESSED:
            cell["source"] = GUESSED[name]
    job = GradingJob.of(LAB, "zoe", source.cells, handed_in, **source.terms(contract, bounds))
    (done,) = engine.run([job])
    assert done.result.status == "graded"
    assert {mark.name: mark.points for mark in done.result.marks} == dict.fromkeys(
        [mark.name for mark in done.result.marks], 0
    )
