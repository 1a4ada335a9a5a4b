"""The check that applies every rule on what crosses to the cells it concerns, unless a cell gives a reason not to."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from mlsys_grading.build.crossing import Rule, data, flow, objects, process
from mlsys_grading.build.finding import BuildFinding, at
from mlsys_grading.build.python import imported_names, parse
from mlsys_grading.build.view import View, student_names
from mlsys_grading.examine.kernels import is_cuda
from mlsys_grading.examine.plan import bound_names
from mlsys_grading.lab import Cell, Lab

UNLOCKED = "LK218"


@dataclass(frozen=True)
class Known:
    """One rule: the kind of cell that it reads, what to write instead, and whether it may be wrong and only warns."""

    find: Rule
    instead: str
    kind: str = "test"
    warns: bool = False


_CLAIM = "mlsys_labkit.checks.expect_shares_memory(answer, argument)"
RULES = {
    "LK201": Known(
        objects.identity, "compare values; only objects of the student's and arguments keep their identity", warns=True
    ),
    "LK202": Known(objects.change_of_an_answer, "call a method of the object, or assign the whole attribute"),
    "LK203": Known(objects.class_relations, "test what its methods do; isinstance(x, ItsOwnClass) crosses"),
    "LK204": Known(objects.operators, "call a named method, or compare attributes and len()"),
    "LK205": Known(objects.introspection, "test what it returns; count with mlsys_labkit.count_work"),
    "LK206": Known(objects.copies, "make a second object with the same calls"),
    "LK211": Known(process.globals_of_the_student, "pass values as arguments, and return what is to be read"),
    "LK212": Known(process.patches, "pass a function of the test's as an argument, or mlsys_labkit.count_work"),
    "LK213": Known(process.settings, "pass it as an argument, or set it in a locked cell: both run those"),
    "LK214": Known(process.streams, "have the function return the text"),
    "LK215": Known(process.files, "pass and return bytes, or arrays"),
    "LK216": Known(process.threads, "call it in turn, from one thread, with values"),
    "LK217": Known(process.probes, "pass the function itself and its arguments: count_work(f, x)"),
    "LK221": Known(data.arguments, "pass numbers, text, lists, dicts, arrays, tensors, or records of locked cells"),
    "LK222": Known(data.writes_to_a_test_object, "have the function return the value"),
    "LK223": Known(data.kept_arguments, "pass what changes to the method, or read an attribute of the object"),
    "LK224": Known(data.gradients, "compute gradients in the student's function and return them as tensors"),
    "LK225": Known(data.memory_of_arrays, f"{_CLAIM}, of an answer and an argument of the same call"),
    "LK231": Known(flow.exceptions, "expect a class of Python's own, or one that a locked cell defines"),
    "LK232": Known(flow.generators, "take its values with next() and list(), or a class with __enter__ and __exit__"),
    "LK233": Known(flow.records, "define the type in a locked cell before the task", kind="solution", warns=True),
    "LK234": Known(flow.random_numbers, "seed again before each side draws, or pass np.random.default_rng(seed)"),
}
_ALLOW = re.compile(r"#\s*labkit:\s*allow\s+(LK\d+)\b[ \t]*[-:,]?[ \t]*(?P<reason>.*)")


def check_crossing(lab: Lab) -> Iterator[BuildFinding]:
    """Find what does not cross between the processes that grade the lab, or crosses as something else."""
    trees = {cell.index: parse(cell.source) for cell in lab.cells if cell.kind == "code" and not is_cuda(cell.source)}
    names = imported_names(trees.values())
    student = student_names(lab, trees)
    for cell in lab.cells:
        kind = "test" if cell.is_test else "solution" if cell.is_solution else ""
        if cell.index in trees and kind:
            yield from _check_cell(lab, cell, View(trees[cell.index], names, student), kind)
    yield from _names_of_unlocked_cells(lab, trees)


def _names_of_unlocked_cells(lab: Lab, trees: dict[int, ast.Module]) -> Iterator[BuildFinding]:
    """Find names that a test or locked cell reads but only a cell that graders do not run binds."""
    ours: set[str] = set()
    theirs: set[str] = set()
    for cell in lab.cells:
        if cell.index in trees:
            is_run = cell.is_solution or cell.is_test or cell.is_locked or "parameters" in cell.tags
            (ours if is_run else theirs).update(bound_names(cell.source))
    for cell in lab.cells:
        if cell.index not in trees or not (cell.is_test or cell.is_locked):
            continue
        nodes = list(ast.walk(trees[cell.index]))
        bound = {each.id for each in nodes if isinstance(each, ast.Name) and not isinstance(each.ctx, ast.Load)}
        bound |= {each.arg for each in nodes if isinstance(each, ast.arg)}
        reads = [each for each in nodes if isinstance(each, ast.Name) and each.id in theirs - ours - bound]
        for node in reads[:1]:
            what = f"`{node.id}` is bound in no locked cell: the graders run no other of the lab's own"
            yield at(lab, cell, node.lineno, UNLOCKED, what, "bind it in a locked cell, or in this one")


def _check_cell(lab: Lab, cell: Cell, view: View, kind: str) -> Iterator[BuildFinding]:
    allowed = {}
    for number, text in enumerate(cell.source.split("\n"), 1):
        if found := _ALLOW.search(text):
            allowed[found[1]] = number
            if len(found["reason"].strip()) < 10:
                yield at(lab, cell, number, found[1], "it is allowed without a reason", "say why it is right here")
    for code, rule in RULES.items():
        if rule.kind != kind:
            continue
        objections = {(getattr(node, "lineno", 1), what) for node, what in rule.find(view)}
        if code in allowed and not objections:
            yield at(lab, cell, allowed[code], code, "it is allowed and does not occur", "delete the comment")
        if code not in allowed:
            for line, what in sorted(objections):
                yield at(lab, cell, line, code, what, rule.instead, warns=rule.warns)
