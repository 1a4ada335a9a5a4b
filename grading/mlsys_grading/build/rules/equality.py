"""Rule 1: no equality on objects of the student's classes."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mlsys_grading.build.rules import Objection
from mlsys_grading.build.view import View


def equality_on_student_objects(view: View) -> Iterator[Objection]:
    """Find ``==`` on a student's object: the student's own ``__eq__`` would decide whether the answer is right."""

    def is_made(node: ast.AST) -> bool:
        return isinstance(node, ast.Call) and bool(view.class_of(node))

    made = [node for node in view.nodes if isinstance(node, ast.Assign) and is_made(node.value)]
    objects = {target.id for node in made for target in node.targets if isinstance(target, ast.Name)}

    for node in view.nodes:
        if isinstance(node, ast.Compare) and any(isinstance(op, ast.Eq | ast.NotEq | ast.In) for op in node.ops):
            sides = [node.left, *node.comparators]
        elif isinstance(node, ast.Call) and view.called(node).rpartition(".")[2] in ("expect_equal", "assert_equal"):
            sides = node.args[:2]
        else:
            continue
        if any(is_made(side) or (isinstance(side, ast.Name) and side.id in objects) for side in sides):
            instead = "compare its attributes or what its methods return"
            yield node.lineno, "== on an object of the student's class", instead
