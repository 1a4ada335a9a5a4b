"""Rule 7: a test cell shows no value."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mlsys_grading.build.rules import Objection
from mlsys_grading.build.view import View

_RETURN_NOTHING = ("expect_", "assert_")  # beginnings: our checks, and those of numpy.testing and torch.testing
_RETURN_SOMETHING = ("expect_peak",)


def shown_value(view: View) -> Iterator[Objection]:
    """Find test cells that end in a value: nbgrader reads a number there as marks, and students see it."""
    last = view.tree.body[-1] if view.tree.body else None
    if isinstance(last, ast.Expr) and not _shows_nothing(view, last.value):
        problem = f"the cell ends in a value, {view.text(last, 60)}, which nbgrader may read as marks"
        yield last.lineno, problem, "write  _ = ...  or move it up"


def _shows_nothing(view: View, value: ast.expr) -> bool:
    if isinstance(value, ast.Constant):
        return value.value is None
    if not isinstance(value, ast.Call):
        return False
    name = view.called(value).rpartition(".")[2]
    return name in ("print", "display") or (name.startswith(_RETURN_NOTHING) and name not in _RETURN_SOMETHING)
