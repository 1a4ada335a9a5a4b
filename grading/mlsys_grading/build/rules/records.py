"""Rule 2: record types live in locked cells, and reference answers do not."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from mlsys_grading.build.finding import Finding, at
from mlsys_grading.build.python import dotted, parse
from mlsys_grading.build.rules.cell import Objection, TestCell
from mlsys_grading.lab import Lab


def records_outside_locked_cells(cell: TestCell) -> Iterator[Objection]:
    """Rule 2: a record that crosses between the two processes must be known to both, so its type is locked."""
    for node in ast.walk(cell.tree):
        if isinstance(node, ast.ClassDef):
            decorators = {dotted(d.func if isinstance(d, ast.Call) else d, cell.names) for d in node.decorator_list}
            bases = {dotted(base, cell.names).rpartition(".")[2] for base in node.bases}
            record = any(name.endswith("dataclass") for name in decorators)
            if record or any(
                re.fullmatch(r"\w*Enum|Flag|IntFlag|NamedTuple|TypedDict|\w*(Exception|Error)", b) for b in bases
            ):
                yield (
                    node.lineno,
                    f"the record type {node.name} is defined in a test cell",
                    "define it in a locked cell before the task",
                )
        elif isinstance(node, ast.Call) and cell.called(node) in (
            "collections.namedtuple",
            "dataclasses.make_dataclass",
        ):
            yield node.lineno, "a record type is made in a test cell", "define it in a locked cell before the task"


_REFERENCE = re.compile(
    r"_?(reference|ref|oracle|expected|solution|correct|truth)(_\w+)?|\w+_(reference|ref|oracle|solution)"
)


def references_in_locked_cells(lab: Lab) -> Iterator[Finding]:
    """Rule 2, the other half: students read locked cells, and a reference answer there is the solution."""
    for cell in lab.cells:
        if cell.is_locked and cell.kind == "code":
            for node in ast.walk(parse(cell.source)):
                if isinstance(node, ast.FunctionDef) and _REFERENCE.fullmatch(node.name):
                    yield at(
                        lab,
                        cell,
                        node.lineno,
                        "rule 2",
                        f"the reference answer {node.name}() stands in a locked cell, where students read it",
                        "move it into the hidden part of the test cell",
                    )
