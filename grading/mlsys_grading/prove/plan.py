"""What is to be run to prove labs, as plain data that crosses to the process that runs it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mlsys_grading.lab import Lab

SOLUTION = "solution"
UNSOLVED = "unsolved"


@dataclass(frozen=True)
class WrongPlan:
    """One wrong answer: the cell that it replaces, and how far to run."""

    job: str
    index: int
    source: str
    last: int


@dataclass(frozen=True)
class LabPlan:
    """One lab: its code cells with the solution and without, its wrong answers, and where its kernel starts."""

    name: str
    cwd: str
    cells: Sequence[dict[str, Any]]  # of CellSource
    stubs: dict[str, str]  # cell index -> source of the unsolved cell
    wrong: Sequence[WrongPlan]


@dataclass(frozen=True)
class Plan:
    """Everything that the server needs to know."""

    results: str
    labs: Sequence[LabPlan]
    modules: Sequence[str]  # imported once, before any fork
    jobs: int
    cell_seconds: float
    memory_bytes: int


def job_name(lab: str, kind: str, task: str = "", wrong: str = "") -> str:
    """The name of a job, which is its result's file name too."""
    return ".".join(part for part in (lab, kind, task, wrong) if part)


def plan_lab(lab: Lab, cwd: Path) -> LabPlan:
    """The work that proves one lab."""
    from mlsys_grading.build.notebook import unsolved_notebook

    unsolved = unsolved_notebook(lab).cells
    cells = [
        {
            "index": cell.index,
            "name": cell.grade_id or f"cell {cell.index + 1}",
            "source": cell.source,
            "is_test": cell.is_test,
        }
        for cell in lab.cells
        if cell.kind == "code" and cell.source.strip() and "skip-execution" not in cell.tags
    ]
    wrong = [
        WrongPlan(
            job_name(lab.name, "wrong", task.name, answer.name),
            task.solution.index,
            answer.source,
            task.tests[-1].index,
        )
        for task in lab.tasks
        if task.tests
        for answer in lab.wrong_for(task.name)
    ]
    return LabPlan(
        lab.name, str(cwd), cells, {str(c.index): unsolved[c.index].source for c in lab.cells if c.is_solution}, wrong
    )


def job_names(plan: Plan) -> list[str]:
    """Every job of a plan."""
    return [
        name
        for lab in plan.labs
        for name in (job_name(lab.name, SOLUTION), job_name(lab.name, UNSOLVED), *(wrong.job for wrong in lab.wrong))
    ]


def to_json(plan: Plan) -> dict[str, Any]:
    return asdict(plan)


def from_json(data: dict[str, Any]) -> Plan:
    labs = [LabPlan(**{**lab, "wrong": [WrongPlan(**one) for one in lab["wrong"]]}) for lab in data["labs"]]
    return Plan(**{**data, "labs": labs})
