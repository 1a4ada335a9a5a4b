"""A lab with every kind of cell that nbgrader knows, submissions to it, and the gradebook's rows to compare."""

from __future__ import annotations

import copy
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mlsys_grading.gradebook.registered import RegisteredLab, register
from mlsys_grading.result import CellMark, Result

LAB = "lab91_kinds"
SECRET = "hidden_input_8317"

Cell = dict[str, Any]


def cell(source: str, name: str = "", kind: str = "code", **flags: Any) -> Cell:
    """Build a cell as nbformat has it; with a name, one of nbgrader's."""
    made: Cell = {"cell_type": kind, "id": name or "plain", "metadata": {}, "source": source}
    if kind == "code":
        made |= {"outputs": [], "execution_count": None}
    if name:
        off = {"grade": False, "solution": False, "locked": False, "task": False}
        made["metadata"]["nbgrader"] = {"schema_version": 3, "grade_id": name} | off | flags
    return made


def notebook(*cells: Cell) -> dict[str, Any]:
    kernel = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
    numbered = [each | {"id": f"c{at}"} for at, each in enumerate(copy.deepcopy(cells))]
    return {"cells": numbered, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}


def solution(name: str, body: str) -> Cell:
    source = f"def {name}(x):\n    ### BEGIN SOLUTION\n    {body}\n    ### END SOLUTION"
    return cell(source, name, solution=True)


def graded(name: str, source: str, points: float) -> Cell:
    return cell(source, name, grade=True, locked=True, points=points)


SOURCE = notebook(
    cell("# Kinds", kind="markdown"),
    cell("import math"),
    cell("LIMIT = 3", "helper", locked=True),
    cell("## Doubling", kind="markdown"),
    solution("double", "return 2 * x"),
    graded("double_test", "assert double(2) == 4", 3),
    graded(
        "double_more",
        f"assert double(1) == 2\n### BEGIN HIDDEN TESTS\n{SECRET} = 8\nassert double({SECRET}) == 16\n"
        "### END HIDDEN TESTS",
        2,
    ),
    cell("## Halving", kind="markdown"),
    solution("halve", "return x / 2"),
    graded("halve_test", "float(4 * (halve(2) == 1) / 2)", 4),
    cell("## Words", kind="markdown"),
    cell("Say why.", "why", kind="markdown", grade=True, solution=True, points=5),
    cell("# draw it", "draw", grade=True, solution=True, points=6),
    cell("Look at the picture.", "look", kind="markdown", task=True, locked=True, points=7),
)


def lab(source: Mapping[str, Any] = SOURCE) -> RegisteredLab:
    return register(LAB, source)


def answered(changes: Mapping[str, str] | None = None, source: Mapping[str, Any] = SOURCE) -> dict[str, Any]:
    """Build a student's notebook: the released one with some answers filled in; None leaves all stubs."""
    found = register(LAB, source)
    cells = []
    for each in copy.deepcopy(source["cells"]):
        name = each["metadata"].get("nbgrader", {}).get("grade_id")
        if name:
            each["source"] = (changes or {}).get(name, found[name].source)
            each["metadata"]["nbgrader"] = dict(found[name].metadata)
        cells.append(each)
    return notebook(*cells)


def result(student: str = "ada", job: str = "job1", points: Mapping[str, float] | None = None, **more: Any) -> Result:
    """Build a result: full marks, except for the tests in ``points``."""
    marks = tuple(
        CellMark(
            each.name,
            (points or {}).get(each.name, each.max_score),
            each.max_score,
            error="" if (points or {}).get(each.name, 1) else "AssertionError: it is not so",
            kinds=() if (points or {}).get(each.name, 1) else ("AssertionError", "Exception"),
            hidden=each.hidden,
        )
        for each in lab().tests
    )
    return Result(job, LAB, student, marks, **more)


def rows(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Return the contents of a gradebook without the random ids: equal for two gradebooks that agree."""
    queries = {
        "assignments": "SELECT name, course_id FROM assignment",
        "notebooks": "SELECT n.name, a.name, n.kernelspec FROM notebook n JOIN assignment a ON n.assignment_id = a.id",
        "cells": "SELECT b.name, b.type, g.max_score, g.cell_type, t.max_score, t.cell_type FROM base_cell b "
        "LEFT JOIN grade_cells g ON g.id = b.id LEFT JOIN task_cells t ON t.id = b.id",
        "sources": "SELECT name, cell_type, locked, source, checksum FROM source_cell",
        "students": "SELECT id FROM student",
        "submissions": "SELECT student_id, timestamp, extension FROM submitted_assignment",
        "penalties": "SELECT s.student_id, n.late_submission_penalty FROM submitted_notebook n "
        "JOIN submitted_assignment s ON n.assignment_id = s.id",
        "grades": "SELECT s.student_id, b.name, b.type, g.auto_score, g.manual_score, g.extra_credit, "
        "g.needs_manual_grade FROM grade g JOIN base_cell b ON g.cell_id = b.id "
        "JOIN submitted_notebook n ON g.notebook_id = n.id JOIN submitted_assignment s ON n.assignment_id = s.id",
        "comments": "SELECT s.student_id, b.name, b.type, c.auto_comment, c.manual_comment FROM comment c "
        "JOIN base_cell b ON c.cell_id = b.id "
        "JOIN submitted_notebook n ON c.notebook_id = n.id JOIN submitted_assignment s ON n.assignment_id = s.id",
        "counts": "SELECT (SELECT count(*) FROM grade), (SELECT count(*) FROM comment), "
        "(SELECT count(*) FROM base_cell), (SELECT count(*) FROM submitted_notebook)",
    }
    connection = sqlite3.connect(path)
    try:
        return {name: sorted(connection.execute(query).fetchall(), key=repr) for name, query in queries.items()}
    finally:
        connection.close()
