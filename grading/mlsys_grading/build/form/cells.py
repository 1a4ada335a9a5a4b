"""nbgrader's metadata: complete, graded by machine, and names that are unique and follow their task."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from mlsys_grading.build.finding import Finding, at
from mlsys_grading.lab import Cell, Lab


def metadata(lab: Lab) -> Iterator[Finding]:
    """A header with a slip in its JSON is read as plain text, and the cell silently loses its marks."""
    lines = lab.path.read_text(encoding="utf-8").splitlines()
    for cell in lab.cells:
        marker = lines[cell.line - 2]
        if "nbgrader" in marker and not cell.nbgrader:
            yield at(
                lab,
                cell,
                0,
                "metadata",
                "nbgrader's metadata in the cell header is no JSON",
                "mend the braces, quotes, true and false",
            )
        keys = {"grade", "grade_id", "locked", "schema_version", "solution", "task"}
        if cell.nbgrader and (missing := sorted(keys - set(cell.nbgrader))):
            yield at(
                lab,
                cell,
                0,
                "metadata",
                f"nbgrader's metadata lacks {', '.join(missing)}",
                "write all six keys, and points for a test",
            )


def kinds(lab: Lab) -> Iterator[Finding]:
    """All grading is automatic: no cell is marked by hand."""
    for cell in lab.cells:
        flags = cell.nbgrader
        if flags.get("task") or (flags.get("grade") and flags.get("solution")):
            yield at(
                lab,
                cell,
                0,
                "kind",
                f"{cell.grade_id} would be marked by hand",
                "write a solution cell and a test cell",
            )
        if flags.get("grade") and cell.kind != "code":
            yield at(lab, cell, 0, "kind", f"{cell.grade_id} is graded but {cell.kind}", "grade code cells only")
        if flags.get("grade") and not flags.get("locked"):
            yield at(lab, cell, 0, "kind", f"the test {cell.grade_id} is not locked", 'write "locked": true')
        if flags.get("grade") and not flags.get("points", 0) > 0:
            yield at(
                lab,
                cell,
                0,
                "kind",
                f"the test {cell.grade_id} has no points",
                'write "points": 5, or make it a plain cell',
            )


def ids(lab: Lab) -> Iterator[Finding]:
    """nbgrader keeps marks by grade id; a second cell of that name would take the first one's."""
    seen: dict[str, Cell] = {}
    for cell in lab.cells:
        if not cell.nbgrader:
            continue
        if not cell.grade_id:
            yield at(
                lab,
                cell,
                0,
                "grade id",
                "the cell has none",
                'write "grade_id": "…", unique over all labs for a solution',
            )
        elif not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", cell.grade_id):
            yield at(
                lab, cell, 0, "grade id", f"{cell.grade_id!r} is no cell id", "use up to 64 letters, digits, _ and -"
            )
        elif cell.grade_id in seen:
            first = lab.where(lab.path, seen[cell.grade_id].line)
            yield at(lab, cell, 0, "grade id", f"{cell.grade_id!r} stands at {first} already", "rename one of them")
        seen.setdefault(cell.grade_id, cell)


def test_names(lab: Lab) -> Iterator[Finding]:
    """A test is called after its task, so that a mark in a gradebook says what it is for."""
    first = lab.tasks[0].solution.index if lab.tasks else len(lab.cells)
    for cell in lab.cells[:first]:
        if cell.is_test:
            yield at(
                lab, cell, 0, "test name", f"{cell.grade_id} stands before any solution cell", "put it after its task"
            )
    for task in lab.tasks:
        for test in task.tests:
            if not re.fullmatch(re.escape(task.name) + r"_test(_\w+)?", test.grade_id):
                yield at(
                    lab,
                    test,
                    0,
                    "test name",
                    f"{test.grade_id!r} follows the task {task.name!r}",
                    f"call it {task.name}_test or {task.name}_test_<word>, or move it",
                )


def unique_tasks(labs: Sequence[Lab]) -> Iterator[Finding]:
    """Hints and predictions go by task name over all labs."""
    seen: dict[str, tuple[Lab, Cell]] = {}
    for lab in labs:
        for task in lab.tasks:
            if task.name in seen and seen[task.name][0] is not lab:
                other, cell = seen[task.name]
                yield at(
                    lab,
                    task.solution,
                    0,
                    "grade id",
                    f"the task {task.name!r} stands at {other.where(other.path, cell.line)} too",
                    "rename one",
                )
            seen.setdefault(task.name, (lab, task.solution))
