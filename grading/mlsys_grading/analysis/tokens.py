"""Code as tokens that survive renaming, comments and layout: what two answers are compared by."""

from __future__ import annotations

import ast
import builtins
import re
from dataclasses import dataclass

from IPython.core.inputtransformer2 import TransformerManager

MOST_CHARACTERS = 100_000  # of one cell; a longer one is compared by its beginning
_BUILT_IN = frozenset(dir(builtins))
_LAYOUT = ast.expr_context | ast.Expr | ast.Module | ast.arguments
_LEXEME = re.compile(
    r"""(?P<skip>\s+|//[^\n]*|/\*.*?\*/|\#(?!(?:define|if|ifdef|else|endif|pragma|include|undef)\b)[^\n]*)"""
    r"""|(?P<text>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')"""
    r"""|(?P<number>\.?\d[\w.]*)|(?P<name>[^\W\d]\w*)|(?P<other>.)""",
    re.DOTALL,
)
# What cannot be renamed in C++ and CUDA; every other name can.
_CPP = frozenset(
    """
    auto bool break case char class const constexpr continue default do double else enum extern float for if inline
    int int8_t int32_t long namespace register restrict return short signed size_t sizeof static struct switch
    template typedef typename uint32_t uint8_t union unsigned using void volatile while half nv_bfloat16 float2
    float4 int4 __global__ __device__ __host__ __shared__ __constant__ __restrict__ __syncthreads __syncwarp
    threadIdx blockIdx blockDim gridDim warpSize fmaf min max atomicAdd __shfl_sync __shfl_xor_sync __shfl_down_sync
    """.split()  # noqa: SIM905 (as a list these would be a page)
)


@dataclass(frozen=True)
class CanonicalToken:
    """``text`` is the same for answers that differ in names alone; ``line`` counts from 1.

    ``part`` numbers the function or class that the token stands in, so that nothing is compared across their edges.
    """

    text: str
    line: int
    part: int = 0


def tokens(source: str) -> tuple[CanonicalToken, ...]:
    """Return the tokens of a cell: of its syntax tree if it is Python, by characters if it is C++ or does not parse.

    Example:
        >>> one = tokens("def mean(xs):\\n    return sum(xs) / len(xs)")
        >>> two = tokens("def average( values ):  # my own\\n\\n    return (sum(values)\\n        / len(values))")
        >>> [token.text for token in one] == [token.text for token in two]
        True
    """
    source = source[:MOST_CHARACTERS]
    tree = python_tree(source)
    return tuple(_lexemes(source) if tree is None else _of_tree(tree))


def python_tree(source: str) -> ast.Module | None:
    """Parse a cell, its %magics and !commands as calls; None for a ``%%cell`` and what does not parse.

    Docstrings and annotations are left out.
    """
    if source.lstrip().startswith("%%"):
        return None
    try:
        tree = ast.parse(TransformerManager().transform_cell(source))
    except (SyntaxError, ValueError, RuntimeError, MemoryError):  # too deep, or magics that IPython gives up
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.returns = None
        elif isinstance(node, ast.arg):
            node.annotation = None
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [each for each in node.body if not _is_text(each)] or [ast.Pass()]
    return tree


def lexemes(source: str) -> tuple[str, ...]:
    """Split C++ or broken Python into words, without comments and layout; names stay as they are.

    Example:
        >>> lexemes("int i = 0; // mine")
        ('int', 'i', '=', '0', ';')
    """
    return tuple(match[0] for match in _LEXEME.finditer(source[:MOST_CHARACTERS]) if match.lastgroup != "skip")


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _of_tree(tree: ast.Module) -> list[CanonicalToken]:
    own = _own_names(tree)
    found: list[CanonicalToken] = []
    line, parts = 1, 0
    stack: list[tuple[ast.AST, int]] = [(tree, 0)]  # not recursion: an answer may nest deeper than Python's stack
    while stack:
        node, part = stack.pop()
        line = getattr(node, "lineno", line)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            parts += 1
            part = parts
        if not isinstance(node, _LAYOUT):
            found.append(CanonicalToken(_text(node, own), line, part))
        annotation = getattr(node, "annotation", None)
        children = [(child, part) for child in ast.iter_child_nodes(node) if child is not annotation]
        stack.extend(reversed(children))
    return sorted(found, key=lambda token: token.part)


def _own_names(tree: ast.Module) -> frozenset[str]:
    """Collect the names that the cell itself binds and could change, attributes and parameters too."""
    own = set()
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                own.add(name)
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                own.add(name)
    return frozenset(own)


def _text(node: ast.AST, own: frozenset[str]) -> str:
    match node:
        case ast.Name(id=name):
            return name if name in _BUILT_IN and name not in own else "name"
        case ast.Attribute(attr=name):
            return ".name" if name in own else f".{name}"
        case ast.keyword():
            return "keyword"  # the name is a parameter's, which the student may have chosen
        case ast.Constant(value=str() | bytes()):
            return "text"
        case ast.Constant(value=value):
            return repr(value)
        case ast.ImportFrom(module=name):
            return f"from {name}"
        case ast.alias(name=name):
            return f"import {name}"
        case ast.AnnAssign():
            return "Assign"
        case _:
            return type(node).__name__


def _lexemes(source: str) -> list[CanonicalToken]:
    found: list[CanonicalToken] = []
    line = 1
    for match in _LEXEME.finditer(source):
        kind, text = match.lastgroup, match[0]
        if kind == "name":
            is_component = len(text) == 1 and bool(found) and found[-1].text == "."  # the x of threadIdx.x
            found.append(CanonicalToken(text if text in _CPP or is_component else "name", line))
        elif kind != "skip":
            found.append(CanonicalToken({"text": "text"}.get(str(kind), text), line))
        line += text.count("\n")
    return found
