"""Cells as Python: magics turned into calls, names traced back to the modules they come from."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping


def to_python(source: str) -> str:
    """A cell's source with IPython's magics turned into calls, so that ``ast`` can read it; lines stay in place."""
    from IPython.core.inputtransformer2 import TransformerManager

    body = source.lstrip("\n")  # IPython drops leading blank lines, and line numbers would move
    return "\n" * (len(source) - len(body)) + TransformerManager().transform_cell(body)


def parse(source: str) -> ast.Module:
    """The cell's tree; an empty one if it is no Python (another rule reports that)."""
    try:
        return ast.parse(to_python(source))
    except SyntaxError:
        return ast.Module([], [])


def imported_names(trees: Iterable[ast.AST]) -> Mapping[str, str]:
    """Each name that an import binds and what it stands for: ``{"np": "numpy", "rand": "torch.rand"}``."""
    names = {}
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    names[alias.asname or alias.name.split(".")[0]] = (
                        alias.name if alias.asname else alias.name.split(".")[0]
                    )
            elif isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return names


def dotted(node: ast.AST, names: Mapping[str, str]) -> str:
    """``np.random.rand`` as ``numpy.random.rand``; empty for anything but a name with attributes."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    return ".".join([names.get(node.id, node.id), *reversed(parts)])


def attribute(node: ast.AST) -> str:
    """``base`` for ``x.base``; empty for anything but an attribute."""
    return node.attr if isinstance(node, ast.Attribute) else ""


def calls(tree: ast.AST) -> Iterator[ast.Call]:
    """Every call, in the order of the lines."""
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return iter(sorted(found, key=lambda node: (node.lineno, node.col_offset)))


def loaded(tree: ast.AST) -> set[str]:
    """Names that the tree reads."""
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}


def stored(tree: ast.AST) -> set[str]:
    """Names that the tree binds by assignment, loop, ``with`` or ``:=``."""
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
