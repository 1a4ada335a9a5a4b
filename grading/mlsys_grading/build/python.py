"""Cells as Python: magics turned into calls, and names resolved to the modules that they come from."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping


def to_python(source: str) -> str:
    """Return a cell's source with IPython's magics as calls, which ``ast`` can read; lines stay in place."""
    from IPython.core.inputtransformer2 import TransformerManager

    body = source.lstrip("\n")  # IPython drops leading blank lines, and line numbers would move
    return "\n" * (len(source) - len(body)) + TransformerManager().transform_cell(body)


def parse(source: str) -> ast.Module:
    """Return the cell's tree; an empty one if it is no Python, which another rule reports."""
    try:
        return ast.parse(to_python(source))
    except SyntaxError:
        return ast.Module([], [])


def imported_names(trees: Iterable[ast.AST]) -> Mapping[str, str]:
    """Return what each imported name stands for: ``{"np": "numpy", "rand": "torch.rand"}``."""
    names = {}
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    top = alias.name.split(".")[0]
                    names[alias.asname or top] = alias.name if alias.asname else top
            elif isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return names


def dotted(node: ast.AST, names: Mapping[str, str]) -> str:
    """Return ``np.random.rand`` as ``numpy.random.rand``; empty for anything but a name with attributes."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    return ".".join([names.get(node.id, node.id), *reversed(parts)])


def attribute(node: ast.AST) -> str:
    """Return ``base`` for ``x.base``; empty for anything but an attribute."""
    return node.attr if isinstance(node, ast.Attribute) else ""


def calls(tree: ast.AST) -> list[ast.Call]:
    """Return every call, in the order of the lines."""
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return sorted(found, key=lambda node: (node.lineno, node.col_offset))


def root_name(node: ast.AST) -> str:
    """Return ``np`` for ``np.random.rand``; empty for anything but a name with attributes."""
    return dotted(node, {}).partition(".")[0]


def is_true(node: ast.AST | None) -> bool:
    """Return whether the expression is the literal ``True``."""
    return isinstance(node, ast.Constant) and node.value is True


def words(table: str) -> frozenset[str]:
    """Return the names in a table of names with white space between them."""
    return frozenset(table.split())


def loaded(tree: ast.AST) -> set[str]:
    """Return the names that the tree reads."""
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}


def stored(tree: ast.AST) -> set[str]:
    """Return the names that the tree binds by assignment, loop, ``with`` or ``:=``."""
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
