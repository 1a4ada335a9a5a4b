"""The rules for test cells. ``labkit prove`` checks rule 6, that the solution passes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from mlsys_grading.build.finding import BuildFinding, at
from mlsys_grading.build.markers import HIDDEN, without
from mlsys_grading.build.python import imported_names, parse
from mlsys_grading.build.rules import Objection
from mlsys_grading.build.rules.aliasing import expected_after_in_place_call
from mlsys_grading.build.rules.equality import equality_on_student_objects
from mlsys_grading.build.rules.process import student_process
from mlsys_grading.build.rules.randomness import unseeded_randomness
from mlsys_grading.build.rules.records import records_outside_locked_cells, references_in_locked_cells
from mlsys_grading.build.rules.shown import shown_value
from mlsys_grading.build.view import View, student_names
from mlsys_grading.lab import Lab

RULES: Mapping[str, Callable[[View], Iterator[Objection]]] = {
    "rule 1": equality_on_student_objects,
    "rule 2": records_outside_locked_cells,
    "rule 3": expected_after_in_place_call,
    "rule 4": student_process,
    "rule 5": unseeded_randomness,
    "rule 7": shown_value,
}


def check_tests(lab: Lab) -> Iterator[BuildFinding]:
    """Apply every rule to every test cell of a lab."""
    trees = {cell.index: parse(cell.source) for cell in lab.cells if cell.kind == "code"}
    names = imported_names(trees.values())
    student = student_names(lab, trees)
    for cell in lab.cells:
        if cell.is_test:
            whole = View(trees[cell.index], names, student)
            visible = View(parse(without(cell.source, HIDDEN)), names, student)  # what students run
            for rule, function in RULES.items():
                objections = {*function(whole), *(function(visible) if function is shown_value else ())}
                for line, problem, instead in sorted(objections):
                    yield at(lab, cell, line, rule, problem, instead)
    yield from references_in_locked_cells(lab)
