"""Rule 2: record types live in locked cells, and reference answers do not."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from mlsys_grading.build.finding import BuildFinding, at
from mlsys_grading.build.python import parse
from mlsys_grading.build.rules import Objection
from mlsys_grading.build.view import View
from mlsys_grading.lab import Lab

_RECORD = re.compile(r"\w*Enum|Flag|IntFlag|NamedTuple|TypedDict|\w*(Exception|Error)")
_MAKERS = ("collections.namedtuple", "dataclasses.make_dataclass")
_INSTEAD = "define it in a locked cell before the task"
_REFERENCE = re.compile(
    r"_?(reference|ref|oracle|expected|solution|correct|truth)(_\w+)?|\w+_(reference|ref|oracle|solution)"
)


def records_outside_locked_cells(view: View) -> Iterator[Objection]:
    """Find record types in test cells: both processes need a type to exchange its records, so it must be locked."""
    for node in view.nodes:
        if isinstance(node, ast.ClassDef):
            decorators = {view.called(d) for d in node.decorator_list}
            bases = {view.called(base).rpartition(".")[2] for base in node.bases}
            if any(name.endswith("dataclass") for name in decorators) or any(map(_RECORD.fullmatch, bases)):
                yield node.lineno, f"the record type {node.name} is defined in a test cell", _INSTEAD
        elif isinstance(node, ast.Call) and view.called(node) in _MAKERS:
            yield node.lineno, "a record type is made in a test cell", _INSTEAD


def references_in_locked_cells(lab: Lab) -> Iterator[BuildFinding]:
    """Find reference answers in locked cells, where students read them."""
    for cell in lab.cells:
        if cell.is_locked and cell.kind == "code":
            for node in ast.walk(parse(cell.source)):
                if isinstance(node, ast.FunctionDef) and _REFERENCE.fullmatch(node.name):
                    problem = f"the reference answer {node.name}() stands in a locked cell, where students read it"
                    instead = "move it into the hidden part of the test cell"
                    yield at(lab, cell, node.lineno, "rule 2", problem, instead)
