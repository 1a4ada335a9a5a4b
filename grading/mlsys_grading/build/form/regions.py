"""What is cut out for students, and what is left."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mlsys_grading.build import markers
from mlsys_grading.build.cpp import is_cpp
from mlsys_grading.build.finding import Finding, at
from mlsys_grading.build.python import to_python
from mlsys_grading.lab import Lab


def balanced(lab: Lab) -> Iterator[Finding]:
    """A marker without its partner, or in the wrong kind of cell, publishes what it should hide."""
    for cell in lab.cells:
        found, wrong = markers.regions(cell.source)
        for one in wrong:
            yield at(lab, cell, one.line, "marker", one.problem, "pair each ### BEGIN with its ### END")
        for region in found:
            if region.what == markers.SOLUTION and not cell.is_solution:
                yield at(
                    lab,
                    cell,
                    region.first - 1,
                    "marker",
                    "a solution outside a solution cell",
                    'write "solution": true in the cell header',
                )
            if region.what == markers.HIDDEN and not cell.is_test:
                yield at(
                    lab,
                    cell,
                    region.first - 1,
                    "marker",
                    "hidden tests outside a test cell",
                    'write "grade": true in the cell header',
                )
        if cell.is_solution and cell.kind == "code" and not found and not wrong:
            yield at(
                lab,
                cell,
                1,
                "marker",
                f"the task {cell.grade_id} has no solution region, so that students get an empty stub",
                "keep signature and docstring, and put the body between ### BEGIN SOLUTION and ### END SOLUTION",
            )


def stub_inside_function(lab: Lab) -> Iterator[Finding]:
    """A stub at the top of a cell fails there, and the test fails with NameError in place of NotImplementedError.

    A stub in C++ is found by ``%%cuda``, wherever it stands, and raises when the kernel is launched.
    """
    for task in lab.tasks:
        if is_cpp(task.solution.source):
            continue
        lines = task.solution.source.split("\n")
        for region in markers.regions(task.solution.source)[0]:
            if region.what == markers.SOLUTION and not lines[region.first - 2].startswith((" ", "\t")):
                yield at(
                    lab,
                    task.solution,
                    region.first - 1,
                    "stub",
                    f"the solution of {task.name} stands outside a function",
                    "put it into a function's or method's body",
                )


def still_parses(lab: Lab) -> Iterator[Finding]:
    """What is left when hidden tests are cut out must be Python: no empty loop or ``if``."""
    for cell in lab.cells:
        if not cell.is_test:
            continue
        for text, when in (
            (cell.source, ""),
            (markers.without(cell.source, markers.HIDDEN), " without its hidden tests"),
        ):
            try:
                ast.parse(to_python(text))
            except SyntaxError as error:
                yield at(lab, cell, error.lineno or 1, "syntax", f"{cell.grade_id}{when}: {error.msg}", "mend it")
                break
