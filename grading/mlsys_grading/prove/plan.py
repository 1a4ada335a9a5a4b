"""The work that proves labs, as plain data that the proving process reads from a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlsys_grading.lab import Lab

SOLUTION = "solution"
UNSOLVED = "unsolved"


@dataclass(frozen=True)
class WrongPlan:
    """One wrong answer: the index of the cell that it replaces, and of the last cell to run."""

    job: str
    index: int
    source: str
    last: int


@dataclass(frozen=True)
class LabPlan:
    """One lab: its code cells with the solution and without, its wrong answers, and its working directory."""

    name: str
    cwd: str
    cells: Sequence[dict[str, Any]]  # of CellSource
    stubs: dict[str, str]  # cell index -> source of the unsolved cell
    wrong: Sequence[WrongPlan]


@dataclass(frozen=True)
class ProofPlan:
    """The input of the server."""

    results: str
    labs: Sequence[LabPlan]
    modules: Sequence[str]  # imported once, before any fork
    jobs: int
    cell_seconds: float
    memory_bytes: int


def job_name(lab: str, kind: str, task: str = "", wrong: str = "") -> str:
    """Return the name of a job, which names its result's file too."""
    return ".".join(part for part in (lab, kind, task, wrong) if part)


def plan_lab(lab: Lab, cwd: Path) -> LabPlan:
    """Plan the work that proves one lab."""
    from mlsys_grading.build.notebook import unsolved_notebook

    unsolved = unsolved_notebook(lab).cells
    cells = []
    for cell in lab.cells:
        if cell.kind == "code" and cell.source.strip() and "skip-execution" not in cell.tags:
            name = cell.grade_id or f"cell {cell.index + 1}"
            cells.append({"index": cell.index, "name": name, "source": cell.source, "is_test": cell.is_test})
    wrong = []
    for task in (task for task in lab.tasks if task.tests):
        first, last = task.solution.index, task.tests[-1].index
        for answer in lab.wrong_for(task.name):
            job = job_name(lab.name, "wrong", task.name, answer.name)
            wrong.append(WrongPlan(job, first, answer.source, last))
    stubs = {str(cell.index): unsolved[cell.index].source for cell in lab.cells if cell.is_solution}
    return LabPlan(lab.name, str(cwd), cells, stubs, wrong)


def job_names(plan: ProofPlan) -> list[str]:
    """Return the names of all jobs of a plan."""
    return [
        name
        for lab in plan.labs
        for name in (job_name(lab.name, SOLUTION), job_name(lab.name, UNSOLVED), *(wrong.job for wrong in lab.wrong))
    ]


def from_json(data: dict[str, Any]) -> ProofPlan:
    labs = [LabPlan(**{**lab, "wrong": [WrongPlan(**one) for one in lab["wrong"]]}) for lab in data["labs"]]
    return ProofPlan(**{**data, "labs": labs})
