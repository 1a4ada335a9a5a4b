"""Rules for nbgrader's metadata: complete, graded by machine, and names that are unique and follow their task."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from mlsys_grading.build.finding import BuildFinding, Objection, at
from mlsys_grading.lab import Cell, Lab

_KEYS = {"grade", "grade_id", "locked", "schema_version", "solution", "task"}


def metadata(lab: Lab) -> Iterator[Objection]:
    """Find headers that are incomplete, or no JSON: those are read as text, and the cell silently loses its marks."""
    lines = lab.path.read_text(encoding="utf-8").splitlines()
    for cell in lab.cells:
        if "nbgrader" in lines[cell.line - 2] and not cell.nbgrader:
            problem = "nbgrader's metadata in the cell header is no JSON"
            yield cell, 0, problem, "mend the braces, quotes, true and false"
        if cell.nbgrader and (missing := sorted(_KEYS - set(cell.nbgrader))):
            problem = f"nbgrader's metadata lacks {', '.join(missing)}"
            yield cell, 0, problem, "write all six keys, and points for a test"


def kinds(lab: Lab) -> Iterator[Objection]:
    """Find cells that a person would have to mark, and tests that students could change or that have no points."""
    for cell in lab.cells:
        flags, name = cell.nbgrader, cell.grade_id
        if flags.get("task") or (flags.get("grade") and flags.get("solution")):
            yield cell, 0, f"{name} would be marked by hand", "write a solution cell and a test cell"
        if not flags.get("grade"):
            continue
        if cell.kind != "code":
            yield cell, 0, f"{name} is graded but {cell.kind}", "grade code cells only"
        if not flags.get("locked"):
            yield cell, 0, f"the test {name} is not locked", 'write "locked": true'
        if not flags.get("points", 0) > 0:
            yield cell, 0, f"the test {name} has no points", 'write "points": 5, or make it a plain cell'


def ids(lab: Lab) -> Iterator[Objection]:
    """Find grade ids that occur twice, or that are no cell ids: nbgrader keeps marks by grade id."""
    seen: dict[str, Cell] = {}
    for cell in (cell for cell in lab.cells if cell.nbgrader):
        name = cell.grade_id
        if not name:
            yield cell, 0, "the cell has none", 'write "grade_id": "…", unique over all labs for a solution'
        elif not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name):
            yield cell, 0, f"{name!r} is no cell id", "use up to 64 letters, digits, _ and -"
        elif name in seen:
            yield cell, 0, f"{name!r} stands at {lab.where(lab.path, seen[name].line)} already", "rename one of them"
        seen.setdefault(name, cell)


def test_names(lab: Lab) -> Iterator[Objection]:
    """Require that tests are named after their task, so that a mark in a gradebook shows its task."""
    first = lab.tasks[0].solution.index if lab.tasks else len(lab.cells)
    for cell in lab.cells[:first]:
        if cell.is_test:
            yield cell, 0, f"{cell.grade_id} stands before any solution cell", "put it after its task"
    for task in lab.tasks:
        for test in task.tests:
            if not re.fullmatch(re.escape(task.name) + r"_test(_\w+)?", test.grade_id):
                problem = f"{test.grade_id!r} follows the task {task.name!r}"
                yield test, 0, problem, f"call it {task.name}_test or {task.name}_test_<word>, or move it"


def unique_tasks(labs: Sequence[Lab]) -> Iterator[BuildFinding]:
    """Find tasks of two labs with one name: hints and predictions are kept by the name of the task alone."""
    seen: dict[str, tuple[Lab, Cell]] = {}
    for lab in labs:
        for task in lab.tasks:
            other, cell = seen.setdefault(task.name, (lab, task.solution))
            if other is not lab:
                problem = f"the task {task.name!r} stands at {other.where(other.path, cell.line)} too"
                yield at(lab, task.solution, 0, "grade id", problem, "rename one")
