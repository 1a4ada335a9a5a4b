"""The rules for test cells. ``labkit prove`` checks rule 6, that the solution passes."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping

from mlsys_grading.build.cpp import bound_name
from mlsys_grading.build.finding import Finding, at
from mlsys_grading.build.markers import HIDDEN, without
from mlsys_grading.build.python import imported_names, parse
from mlsys_grading.build.rules.aliasing import expected_after_in_place_call
from mlsys_grading.build.rules.cell import Objection, Student, TestCell
from mlsys_grading.build.rules.equality import equality_on_student_objects
from mlsys_grading.build.rules.process import student_process
from mlsys_grading.build.rules.randomness import unseeded_randomness
from mlsys_grading.build.rules.records import records_outside_locked_cells, references_in_locked_cells
from mlsys_grading.build.rules.shown import shown_value
from mlsys_grading.lab import Cell, Lab

RULES: Mapping[str, Callable[[TestCell], Iterator[Objection]]] = {
    "rule 1": equality_on_student_objects,
    "rule 2": records_outside_locked_cells,
    "rule 3": expected_after_in_place_call,
    "rule 4": student_process,
    "rule 5": unseeded_randomness,
    "rule 7": shown_value,
}


def check_tests(lab: Lab) -> Iterator[Finding]:
    """Apply every rule to every test cell of a lab."""
    trees = {cell.index: parse(cell.source) for cell in lab.cells if cell.kind == "code"}
    names = imported_names(trees.values())
    student = _student(cell for cell in lab.cells if cell.is_solution)
    for cell in lab.cells:
        if cell.is_test:
            view = TestCell(trees[cell.index], parse(without(cell.source, HIDDEN)), names, student)
            for rule, function in RULES.items():
                for line, problem, instead in sorted(set(function(view))):
                    yield at(lab, cell, line, rule, problem, instead)
    yield from references_in_locked_cells(lab)


def _student(solutions: Iterator[Cell]) -> Student:
    functions, classes, annotated = set(), set(), {}
    for cell in solutions:
        if kernel := bound_name(cell.source):
            functions.add(kernel)
        for node in parse(cell.source).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                functions.add(node.name)
                annotated[node.name] = ast.unparse(node.returns).strip("'\"") if node.returns else ""
            elif isinstance(node, ast.ClassDef):
                classes.add(node.name)
    returns = {name: kind for name, kind in annotated.items() if kind in classes}
    return Student(frozenset(functions), frozenset(classes), returns)
