"""Sizes of a program, replaced in its text: ``#define N ...``, ``const int N = ...`` and ``int N = ...``."""

from __future__ import annotations

import re
from collections.abc import Mapping

from mlsys_labkit.cuda.source.source import Source

_DEFINE = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)(?![\w(])", re.MULTILINE)
# Both end with a declarator, the first of its declaration or behind a comma.
_CONSTANT = (
    r"\b(?:const|constexpr)\b(?:[^;(){}]|\([^;(){}]*\))*?(?<=[\s,*])NAME\s*=(?!=)((?:[^;,(){}]|\([^;(){}]*\))*)(?=[;,])"
)
_VARIABLE = (
    r"\b(?:int|unsigned|long|short|size_t|u?int\d+_t|float|double)\b(?:[^;(){}]|\([^;(){}]*\))*?(?<=[\s,])NAME\s*="
    r"(\s*[\d(](?:[\s\d.eEfFuUlLxXa-fA-F'()<>*/+%-])*)(?=[;,])"
)

_NO_TYPES = frozenset(["return", "case", "else", "sizeof", "new", "delete", "goto", "and", "or", "not", "throw", "do"])
_TYPES = frozenset(["int", "unsigned", "long", "short", "size_t", "float", "double", "char", "bool", "void"])


def with_defines(source: Source, defines: Mapping[str, object]) -> Source:
    """Replace the source's own sizes: `#define N ...`, `const int N = ...`, or else `int N = 1 << 20`, a variable's.

    Example:
        >>> with_defines(Source("const int w = 64, h = f(1, 2); int n = 1 << 20;"), {"h": 8, "n": 5}).text
        'const int w = 64, h = 8; int n = 5;'
    """
    if not defines:
        return source
    code = source.masked
    edits = []
    for name, value in defines.items():
        for start, end in _definitions(code, name) or _values(_CONSTANT, code, name) or _values(_VARIABLE, code, name):
            edits.append((start, end, f" {value}" + "\n" * code.count("\n", start, end)))
    return Source(source.edited(edits)) if edits else source


def declares(source: Source, name: str) -> bool:
    """Return whether the source has a variable or parameter of this name, and asks for no macro of it.

    Example:
        >>> declares(Source("void f(int n);"), "n"), declares(Source("int x = n;"), "n")
        (True, False)
    """
    directives = (token.text for token in source.tokens if token.kind == "directive")
    if any(re.search(rf"^#\s*(?:if|elif).*\b{re.escape(name)}\b", text) for text in directives):
        return False
    code = source.code
    places = (index for index in range(1, len(code)) if code[index].text == name)
    return any(
        (code[index - 1].kind == "identifier" and code[index - 1].text not in _NO_TYPES)
        or (code[index - 1].text in ("*", "&") and code[index - 2].text in _TYPES)
        for index in places
    )


def _definitions(code: str, name: str) -> list[tuple[int, int]]:
    """Return the places behind each `#define name`, with the lines that continue it."""
    places = []
    for found in _DEFINE.finditer(code):
        if found[1] != name:
            continue
        end = found.end()
        while (newline := code.find("\n", end)) >= 0 and code[end:newline].rstrip().endswith("\\"):
            end = newline + 1
        places.append((found.end(), len(code) if newline < 0 else newline))
    return places


def _values(declaration: str, code: str, name: str) -> list[tuple[int, int]]:
    """Return the places of the values that `name` gets in declarations of this kind."""
    return [found.span(1) for found in re.finditer(declaration.replace("NAME", re.escape(name)), code)]
