"""Attacks by the text of kernels and by the calls of ranks, on the real labs, through ``labkit grade``.

``make soak`` grades them, with an honest neighbour on each lab: the suite has no time for the compiler.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.grading.corpus.door import grade, real, student
from tests.grading.corpus.kernels import CUDA, RANKS, REAL, TRITON, Answered, lab

pytestmark = [
    pytest.mark.usefixtures("sandbox_allowed"),
    pytest.mark.xdist_group("corpus"),
]


def right(name: str) -> Answered:
    """Build the submission of a student who hands in the lab's own solutions."""
    cells = {cell.grade_id: cell.source for cell in lab(name).cells if cell.is_solution}
    every = frozenset(test.grade_id for task in lab(name).tasks for test in task.tests)
    return Answered(f"right in {name}", name, "the lab's own solutions", cells, passes=every)


def check(root: Path, entries: Sequence[Answered]) -> None:
    marks = grade(real(root, entries), [student(each) for each in entries], "--jobs", "3")
    unfair = {each.name: marks.cells.get(student(each), frozenset()) ^ each.passes for each in entries}
    assert {name: sorted(cells) for name, cells in unfair.items() if cells} == {}
    assert marks.totals == marks.exported
    assert all(marks.totals[student(each)] == 100 for each in entries if each.name.startswith("right"))
    assert (marks.apart, marks.code) == ({}, 0)
    assert (marks.changed, marks.left) == ([], [])
    assert not Path("/tmp/escaped").exists()
    for each in entries:  # a text that no compiler or tracer ever saw would prove nothing
        result = root / f".mlsys-grading/results/{each.lab}/{student(each)}.json"
        reasons = [mark["error"] for mark in json.loads(result.read_text())["marks"]]
        assert not any("NotImplementedError" in reason for reason in reasons[:1] if each.lab == TRITON), each.name


def test_corpus_has_attacks_for_each_kind_of_kernel() -> None:
    assert len({each.name for each in REAL}) == len(REAL) >= 55
    assert min(sum(each.lab == name for each in REAL) for name in (CUDA, TRITON, RANKS)) >= 9


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", [CUDA, TRITON, RANKS])
def test_kernel_and_rank_attacks_get_deserved_marks(tmp_path: Path, name: str) -> None:
    check(tmp_path, [right(name), *(each for each in REAL if each.lab == name)])
