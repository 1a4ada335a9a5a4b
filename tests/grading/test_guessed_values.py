"""Ranks that send zeros in the right messages, and guess the values from what the student's notebook shows.

Such an answer needs no way around the recorder: the notebook shows how each test makes its tensors, and each rank has
its own tensor to compare with. Hidden cases draw theirs from a seed that no notebook shows.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mlsys_grading.build.notebook import source_notebook
from mlsys_grading.grade.engine import GradingEngine
from mlsys_grading.grade.job import GradingJob
from mlsys_grading.lab import read_lab
from tests.conftest import ROOT
from tests.grading.test_solutions import engine, learned

pytestmark = [pytest.mark.usefixtures("sandbox_allowed"), pytest.mark.places, pytest.mark.timeout(600)]
__all__ = ["engine"]
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


def test_guessed_values_earn_nothing(engine: GradingEngine, tmp_path: Path) -> None:
    notebook = source_notebook(read_lab(ROOT, LAB))
    names = [cell["metadata"].get("nbgrader", {}).get("grade_id", "") for cell in notebook["cells"]]
    kept = ("lab07_imports", *GUESSED)
    notebook["cells"] = [cell for cell, name in zip(notebook["cells"], names, strict=True) if name.startswith(kept)]
    source, bounds, contract = learned(engine, notebook, LAB, tmp_path)

    handed_in = json.loads(json.dumps(source.cells))
    for cell in handed_in:
        name = cell["metadata"]["nbgrader"]["grade_id"]
        if name in GUESSED:
            cell["source"] = GUESSED[name]
    job = GradingJob.of(LAB, "zoe", source.cells, handed_in, **source.terms(contract, bounds))
    (done,) = engine.run([job])
    assert done.result.status == "graded"
    assert [(mark.name, mark.points) for mark in done.result.marks if mark.points] == []
    assert len(done.result.marks) == 7
