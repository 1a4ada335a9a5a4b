"""A lab as nbgrader registers it: what its gradebook keeps of every cell that is graded, solved or locked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from mlsys_grading.lab.asked import since_heading
from mlsys_labkit.errors import LabkitError

Kind = Literal["test", "solution", "manual", "task", "locked"]


@dataclass(frozen=True)
class RegisteredCell:
    """One cell of the lab.

    Attributes:
        kind: a "test" is graded by running it, a "manual" cell is an answer that a person grades, a "task" asks a
            person to grade what follows it, a "locked" cell is only there.
        source: with hidden tests and without solutions.
        metadata: nbgrader's, by its schema 3, with the checksum of ``source``.
        heading: of the part of the lab that the cell stands in.
        asked: Markdown above the cell, since the heading or the test before it; "" for a locked cell.
        hidden: it has hidden tests.
    """

    name: str
    kind: Kind
    cell_type: Literal["code", "markdown"]
    source: str
    metadata: Mapping[str, Any]
    max_score: float = 0.0
    heading: str = ""
    asked: str = ""
    hidden: bool = False

    @property
    def is_locked(self) -> bool:
        """True if the text of this cell in a submission is ignored."""
        return self.kind == "test" or (self.kind in ("task", "locked") and bool(self.metadata["locked"]))


@dataclass(frozen=True)
class RegisteredLab:
    """The cells of one lab, in order. ``kernelspec`` is the JSON that nbgrader keeps.

    Example:
        >>> metadata = {"nbgrader": {"grade_id": "f_test", "grade": True, "solution": False, "locked": True,
        ...                          "task": False, "points": 2, "schema_version": 3}}
        >>> cell = {"cell_type": "code", "source": "assert f() == 1", "metadata": metadata}
        >>> lab = register("lab00_your_machine", {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5})
        >>> [(cell.name, cell.kind, cell.max_score) for cell in lab.cells]
        [('f_test', 'test', 2.0)]
    """

    name: str
    cells: tuple[RegisteredCell, ...]
    kernelspec: str = "{}"

    def __getitem__(self, name: str) -> RegisteredCell:
        return next(cell for cell in self.cells if cell.name == name)

    @property
    def tests(self) -> tuple[RegisteredCell, ...]:
        return tuple(cell for cell in self.cells if cell.kind == "test")

    @property
    def max_score(self) -> float:
        return sum(cell.max_score for cell in self.cells)


def register(name: str, source: Mapping[str, Any]) -> RegisteredLab:
    """Read the instructor's notebook as ``nbgrader generate_assignment`` does, by its own steps.

    Args:
        source: the notebook ``build/source/LAB/LAB.ipynb``, with solutions and hidden tests.

    Raises LabkitError for a notebook that nbgrader refuses.
    Reference: https://nbgrader.readthedocs.io/en/stable/user_guide/creating_and_grading_assignments.html
    """
    import nbformat
    from nbgrader import preprocessors as steps, utils

    from mlsys_grading.build import markers
    from mlsys_grading.build.stubs import ClearCells

    # By way of text: a file's cells may be lists of lines, which nbformat joins as it reads.
    notebook: Any = nbformat.reads(json.dumps(source), as_version=4)  # type: ignore[no-untyped-call]
    resources: dict[str, Any] = {}
    for step in (steps.LockCells, ClearCells, steps.ClearOutput, steps.CheckCellMetadata, steps.ComputeChecksums):
        try:
            notebook, resources = step()(notebook, resources)
        except Exception as error:  # nbgrader raises RuntimeError, KeyError, ValidationError, ... for a bad notebook
            reason = " ".join(str(error).split())
            raise LabkitError(f"{name}: nbgrader's {step.__name__} refuses the source: {reason}; mend it") from None
    cells, heading = [], ""
    above: list[str] = []
    for cell in notebook.cells:
        found, text = since_heading(cell.source) if cell.cell_type == "markdown" else ("", "")
        heading = found or heading
        is_task = utils.is_task(cell)
        if not (is_task or utils.is_grade(cell) or utils.is_solution(cell) or utils.is_locked(cell)):
            above = [text] if found else [*above, text]
            continue
        metadata = dict(cell.metadata.nbgrader)
        kind = _kind(is_task, utils.is_grade(cell), utils.is_solution(cell))
        if cell.cell_type == "raw":
            raise LabkitError(f"{name}: the raw cell {metadata['grade_id']} is for nbgrader; make it code or markdown")
        points = 0.0 if kind in ("solution", "locked") else float(metadata["points"])
        hidden = any(region.what == markers.HIDDEN for region in markers.regions(cell.source)[0])
        asked = "" if kind == "locked" else "\n\n".join(filter(None, above))
        above = above if kind == "locked" else []
        grade_id = metadata["grade_id"]
        cells.append(
            RegisteredCell(grade_id, kind, cell.cell_type, cell.source, metadata, points, heading, asked, hidden)
        )
    return RegisteredLab(name, tuple(cells), json.dumps(notebook.metadata.get("kernelspec", {})))


def _kind(task: bool, grade: bool, solution: bool) -> Kind:
    if task:
        return "task"
    if grade:
        return "manual" if solution else "test"
    return "solution" if solution else "locked"
