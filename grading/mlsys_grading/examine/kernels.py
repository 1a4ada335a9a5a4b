"""Kernels as data: CUDA C++ and Triton that the student wrote, compiled or interpreted from their text alone.

No Python of the student's runs here. A ``%%cuda`` cell is text for a compiler. ``triton_cells`` defines Triton kernels.
"""

from __future__ import annotations

import ast

_MAGIC = "%%cuda"


def is_cuda(source: str) -> bool:
    """Return True if a cell is CUDA C++.

    Example:
        >>> is_cuda("%%cuda add\\n__global__ void add() {}"), is_cuda("x = 1")
        (True, False)
    """
    return source.lstrip().startswith(_MAGIC)


def cuda_cell(reference: str, answer: str) -> str:
    """Put the answer's C++ under the reference's own first line, whatever options the answer asked for.

    Always as a graded kernel: another may run code of the host, which could reach what is compiled later.

    Example:
        >>> cuda_cell("%%cuda add\\nA", "%%cuda add --backend gpu\\nB")
        '%%cuda add --graded\\nB'
    """
    first = reference.lstrip().partition("\n")[0].rstrip()
    first += "" if "--graded" in first.split() else " --graded"
    body = answer.lstrip().partition("\n")[2] if is_cuda(answer) else answer
    return f"{first}\n{body}"


def is_triton(statement: ast.AST) -> bool:
    """Return True if a statement defines a function for Triton's compiler."""
    return isinstance(statement, ast.FunctionDef) and any(_is_jit(each) for each in statement.decorator_list)


def _is_jit(node: ast.expr) -> bool:
    function = node.func if isinstance(node, ast.Call) else node
    return ast.unparse(function) in ("triton.jit", "jit")
