"""Rule 3: the expected value is computed before the student's function can change its argument."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from mlsys_grading.build.python import dotted, loaded, stored
from mlsys_grading.build.rules import Objection
from mlsys_grading.build.view import View

_EXPECTED = re.compile(r"(expect|want|ref|true|truth|correct|oracle|theory|target|answer)", re.IGNORECASE)


def expected_after_in_place_call(view: View) -> Iterator[Objection]:
    """Find expected values computed from an argument after a bare call, which changes it: a test against itself."""
    for block in _blocks(view):
        touched: dict[str, tuple[str, int]] = {}  # argument -> (function, line)
        for statement in block:
            for value, compared in _expected_values(statement):
                for name in sorted(loaded(value) & set(touched)):
                    if compared is None or name == compared:
                        function, line = touched[name]
                        why = f"comes from {name!r} after {function}() changed it (cell line {line})"
                        yield statement.lineno, f"the expected value {why}", "compute it before the call"
            for name in stored(statement):
                touched.pop(name, None)
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
                call = statement.value
                called = _called(call.func)
                if called in view.student.functions or called in view.student.kernels:
                    for argument in call.args:
                        if isinstance(argument, ast.Name):
                            touched[argument.id] = (called, statement.lineno)


def _called(function: ast.expr) -> str:
    """Return ``f`` for ``f(x)``, and for a launch ``f[grid, block](x)``."""
    if isinstance(function, ast.Subscript):
        function = function.value
    return function.id if isinstance(function, ast.Name) else ""


def _blocks(view: View) -> Iterator[list[ast.stmt]]:
    for node in view.nodes:
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list) and block and isinstance(block[0], ast.stmt):
                yield block


def _expected_values(statement: ast.stmt) -> Iterator[tuple[ast.AST, str | None]]:
    """Yield the computed values that a statement expects, with the name they are compared with (None: stored)."""
    if isinstance(statement, ast.Assign) and _computes(statement.value):
        if any(isinstance(t, ast.Name) and _EXPECTED.match(t.id) for t in statement.targets):
            yield statement.value, None
        return
    if not isinstance(statement, ast.Expr | ast.Assert):
        return
    for node in ast.walk(statement):
        pairs: list[ast.expr] = []
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], ast.Eq):
            pairs = [node.left, node.comparators[0]]
        elif isinstance(node, ast.Call) and re.search(r"close|equal", dotted(node.func, {})):
            pairs = node.args[:2]
        if len(pairs) == 2:
            for one, other in (pairs, pairs[::-1]):
                if isinstance(one, ast.Name) and _computes(other):
                    yield other, one.id


def _computes(node: ast.AST) -> bool:
    return any(isinstance(part, ast.Call | ast.BinOp) for part in ast.walk(node))
