"""Rules for the regions that are cut out of the students' notebook, and for the cells without them."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mlsys_grading.build import markers
from mlsys_grading.build.cpp import is_cpp
from mlsys_grading.build.finding import Objection
from mlsys_grading.build.python import to_python
from mlsys_grading.lab import Lab


def balanced(lab: Lab) -> Iterator[Objection]:
    """Find markers without a partner, or in the wrong kind of cell: they publish text that they should hide."""
    for cell in lab.cells:
        found, wrong = markers.regions(cell.source)
        for one in wrong:
            yield cell, one.line, one.problem, "pair each ### BEGIN with its ### END"
        for region in found:
            line = region.first - 1
            if region.what == markers.SOLUTION and not cell.is_solution:
                instead = 'write "solution": true in the cell header'
                yield cell, line, "a solution outside a solution cell", instead
            if region.what == markers.HIDDEN and not cell.is_test:
                yield cell, line, "hidden tests outside a test cell", 'write "grade": true in the cell header'
        if cell.is_solution and cell.kind == "code" and not found and not wrong:
            problem = f"the task {cell.grade_id} has no solution region, so that students get an empty stub"
            instead = "keep signature and docstring, and put the body between ### BEGIN SOLUTION and ### END SOLUTION"
            yield cell, 1, problem, instead


def stub_inside_function(lab: Lab) -> Iterator[Objection]:
    """Find stubs at the top level of a cell: it fails there, and its tests with NameError, not NotImplementedError.

    A stub in C++ may stand anywhere: ``%%cuda`` finds it, and raises when the kernel is launched.
    """
    for cell in (task.solution for task in lab.tasks if not is_cpp(task.solution.source)):
        lines = cell.source.split("\n")
        for region in markers.regions(cell.source)[0]:
            if region.what == markers.SOLUTION and not lines[region.first - 2].startswith((" ", "\t")):
                problem = f"the solution of {cell.grade_id} stands outside a function"
                yield cell, region.first - 1, problem, "put it into a function's or method's body"


def still_parses(lab: Lab) -> Iterator[Objection]:
    """Find tests that are no Python, also without their hidden part, which may leave an empty loop or ``if``."""
    for cell in (cell for cell in lab.cells if cell.is_test):
        without = markers.without(cell.source, markers.HIDDEN)
        for text, when in ((cell.source, ""), (without, " without its hidden tests")):
            try:
                ast.parse(to_python(text))
            except SyntaxError as error:
                yield cell, error.lineno or 1, f"{cell.grade_id}{when}: {error.msg}", "mend it"
                break
