"""Rule 1: no equality on objects of the student's classes."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mlsys_grading.build.rules.cell import Objection, TestCell


def equality_on_student_objects(cell: TestCell) -> Iterator[Objection]:
    """Find ``==`` on a student's object: the student's own ``__eq__`` would decide whether the answer is right."""
    made = [node for node in ast.walk(cell.tree) if isinstance(node, ast.Assign)]
    targets = [target for node in made if _makes_student_object(cell, node.value) for target in node.targets]
    objects = {target.id for target in targets if isinstance(target, ast.Name)}

    def is_object(node: ast.AST) -> bool:
        return (isinstance(node, ast.Name) and node.id in objects) or _makes_student_object(cell, node)

    for node in ast.walk(cell.tree):
        if isinstance(node, ast.Compare) and any(isinstance(op, ast.Eq | ast.NotEq | ast.In) for op in node.ops):
            sides = [node.left, *node.comparators]
        elif isinstance(node, ast.Call) and cell.called(node).rpartition(".")[2] in ("expect_equal", "assert_equal"):
            sides = node.args[:2]
        else:
            continue
        if any(is_object(side) for side in sides):
            instead = "compare its attributes or what its methods return"
            yield node.lineno, "== on an object of the student's class", instead


def _makes_student_object(cell: TestCell, node: ast.AST) -> bool:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        return False
    return node.func.id in cell.student.classes or node.func.id in cell.student.returns
