"""Kernels as data: CUDA C++ and Triton that the student wrote, compiled or interpreted from their text alone.

No Python of the student's runs here. A ``%%cuda`` cell is text for a compiler; a ``@triton.jit`` function is a
definition whose body only the tracer ever reads, and whose decorators, defaults and annotations are not taken over
where they are more than a constant or a name.
"""

from __future__ import annotations

import ast

from mlsys_grading.examine.plan import bound_names

__all__ = ["cuda_cell", "is_cuda", "is_triton", "triton_definition"]

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


def triton_definition(name: str, answer: str) -> str | None:
    """Return the source of the answer's ``@triton.jit`` function ``name``, safe to define; None if there is none.

    Example:
        >>> print(triton_definition("f", "@print\\n@triton.jit\\ndef f(x, n=open('/x'), B: tl.constexpr = 4): pass"))
        @triton.jit
        def f(x, n=None, B: tl.constexpr=4):
            pass
    """
    found = bound_names(answer).get(name)
    if not isinstance(found, ast.FunctionDef) or not is_triton(found):
        return None
    arguments = found.args
    arguments.defaults = [each if _is_constant(each) else ast.Constant(None) for each in arguments.defaults]
    arguments.kw_defaults = [each if each is None or _is_constant(each) else None for each in arguments.kw_defaults]
    for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
        if argument.annotation is not None and ast.unparse(argument.annotation) not in _ANNOTATIONS:
            argument.annotation = None
    for rest in (arguments.vararg, arguments.kwarg):
        if rest is not None:
            rest.annotation = None
    found.decorator_list = [ast.parse("triton.jit", mode="eval").body]
    found.returns = None
    if hasattr(found, "type_params"):
        found.type_params = []
    return ast.unparse(ast.fix_missing_locations(found))


_ANNOTATIONS = ("tl.constexpr", "triton.language.constexpr", "constexpr")


def _is_jit(node: ast.expr) -> bool:
    function = node.func if isinstance(node, ast.Call) else node
    return ast.unparse(function) in ("triton.jit", "jit")


def _is_constant(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) or (isinstance(node, ast.UnaryOp) and isinstance(node.operand, ast.Constant))
