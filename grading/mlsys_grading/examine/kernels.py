"""Kernels as data: CUDA C++ and Triton that the student wrote, compiled or interpreted from their text alone.

No Python of the student's runs here. A ``%%cuda`` cell is text for a compiler. ``triton_cells`` defines Triton kernels.
"""

from __future__ import annotations

import ast
import re
from dataclasses import replace

from mlsys_grading.examine.plan import unwrapped
from mlsys_labkit.cuda.errors import CudaError
from mlsys_labkit.cuda.kernel.cell_line import CellLine

_MAGIC = "%%cuda"
_DEFINED = re.compile(r"[A-Za-z_]\w*(?:=[\w.]*)?")
_NAMED = re.compile(r"[A-Za-z_]\w*(?: ?<[\w, ]*>)?")


def is_cuda(source: str) -> bool:
    """Return True if a cell is CUDA C++.

    Example:
        >>> is_cuda("%%cuda add\\n__global__ void add() {}"), is_cuda("x = 1")
        (True, False)
    """
    return source.lstrip().startswith(_MAGIC)


def cuda_cell(reference: str, answer: str) -> str:
    """Put the answer's C++ under the reference's own first line, with the macros and the kernel that the answer names.

    Always as a graded kernel: another may run code of the host, which could reach what is compiled later. Macros of the
    reference's line keep its values, and macros are numbers and names, so that none hides what is not allowed.

    Example:
        >>> cuda_cell("%%cuda add", "%%time\\n%%cuda add -D N=4 --backend gpu adds<8>\\nB")
        '%%cuda add --graded -D N=4 adds<8>\\nB'
    """
    inner = unwrapped(answer)
    line, _, body = inner.lstrip().partition("\n") if is_cuda(inner) else ("", "", answer)
    asked = _line(reference.lstrip().partition("\n")[0])
    try:
        given = _line(line)
    except CudaError:  # in the notebook the cell has no kernel; here its text may still have one
        given = asked
    fixed = {each.partition("=")[0] for each in asked.defines}
    taken = (one for one in given.defines if _DEFINED.fullmatch(one) and one.partition("=")[0] not in fixed)
    kernel = given.kernel if _NAMED.fullmatch(given.kernel) else asked.kernel
    return f"{_MAGIC} {replace(asked, kernel=kernel, defines=(*asked.defines, *taken), graded=True)}\n{body}"


def _line(line: str) -> CellLine:
    return CellLine.read(line.removeprefix(_MAGIC))


def is_triton(statement: ast.AST) -> bool:
    """Return True if a statement defines a function for Triton's compiler."""
    return isinstance(statement, ast.FunctionDef) and any(_is_jit(each) for each in statement.decorator_list)


def _is_jit(node: ast.expr) -> bool:
    function = node.func if isinstance(node, ast.Call) else node
    return ast.unparse(function) in ("triton.jit", "jit")
