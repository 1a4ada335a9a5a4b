"""``__shared__``: its dynamic arrays, which all begin at one address, and what no such variable may have."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from mlsys_labkit.cuda.source.scopes import ANONYMOUS
from mlsys_labkit.cuda.source.source import Source
from mlsys_labkit.cuda.source.tokens import Token, split_commas

SYMBOL = "lk_dynamic_shared"  # the one array that all dynamic arrays are names of

_MACRO = re.compile(r"#[ \t]*define[ \t]+(\w+)\(([^)]*)\)(.*)", re.DOTALL)
_IN_MACRO = re.compile(r"\bextern\b[^;{}]*\b__shared__\b[^;{}]*?(\w+)\s*\[\s*\]")


def dynamic_arrays(source: Source) -> tuple[str, ...]:
    """Return the symbols of the dynamic arrays. A declaration in a function belongs to the namespace around it.

    Example:
        >>> dynamic_arrays(Source("extern __shared__ float4 a[], b[][4]; namespace q { extern __shared__ int c[]; }"))
        ('a', 'b', '_ZN1q1cE')
        >>> dynamic_arrays(Source("extern __shared__ Stages<4, float> s;"))
        ('s',)
    """
    code = source.code
    found: dict[str, None] = {}
    for index, token in enumerate(code):
        if token.text == "__shared__" and "extern" in _specifiers(code, index):
            for name in _declarators(source, index):
                found.update(dict.fromkeys(_mangled((*source.around[index], name))))
    for index, name in _named_by_macros(source):
        found.update(dict.fromkeys(_mangled((*source.around[index], name))))
    return tuple(found)


def _named_by_macros(source: Source) -> Iterator[tuple[int, str]]:
    """Yield place and name of each dynamic array that a macro declares with a name that it is given."""
    places: dict[str, int] = {}
    for token in source.tokens:
        macro = _MACRO.match(token.text) if token.kind == "directive" else None
        declared = _IN_MACRO.search(macro[3]) if macro else None
        parameters = [one.strip() for one in macro[2].split(",")] if macro else []
        if macro and declared and declared[1] in parameters:
            places[macro[1]] = parameters.index(declared[1])
    code = source.code
    for index, token in enumerate(code[:-1]):
        if token.text in places and code[index + 1].text == "(":
            begin, end = code[index + 1].end, code[source.closing[index + 1]].start
            given = split_commas(source.masked[begin:end])
            if places[token.text] < len(given):
                yield index, given[places[token.text]].strip()


def initialized_shared(source: Source) -> tuple[int, ...]:
    """Return the lines where a shared variable has an initializer, which g++ would run once and nvcc refuses.

    Example:
        >>> initialized_shared(Source("__shared__ int n = 0;"))
        (1,)

    Reference: CUDA C++ programming guide, "Device memory space specifiers".
    """
    shared = (index for index, token in enumerate(source.code) if token.text == "__shared__")
    return tuple(source.code[index].line for index in shared if _has_value(source, index))


def _has_value(source: Source, index: int) -> bool:
    code = source.code
    angles = 0
    while index + 1 < len(code) and code[index].text not in (";", "}"):
        before, text, following = code[index - 1], code[index].text, code[index + 1].text
        if text in ("(", "[", "{"):
            index = source.closing[index]
        elif text in ("<", ">"):
            angles += 1 if text == "<" else -1
        elif text == "=" and not angles and following != "=" and (before.kind == "identifier" or before.text == "]"):
            return True
        index += 1
    return False


def _mangled(path: tuple[str, ...]) -> tuple[str, ...]:
    """Return a variable's possible names in the Itanium C++ ABI.

    g++ 15 marks those in an unnamed namespace as local (L).
    """
    if len(path) == 1:
        return path
    *around, name = (f"{len(part)}{part}" for part in ("_GLOBAL__N_1" if one == ANONYMOUS else one for one in path))
    marks = ("", "L") if ANONYMOUS in path else ("",)
    return tuple(f"_ZN{''.join(around)}{mark}{name}E" for mark in marks)


def _specifiers(code: Sequence[Token], index: int) -> set[str]:
    """Return the words of the declaration, on both sides of ``__shared__``."""
    begin = index
    while begin > 0 and code[begin - 1].text not in (";", "{", "}", ")"):
        begin -= 1
    end = index
    while end < len(code) and code[end].text not in (";", "[", "{", "}"):
        end += 1
    return {token.text for token in code[begin:end]}


def _declarators(source: Source, index: int) -> Iterator[str]:
    """Yield the names in front of brackets, commas and the semicolon: a dynamic "array" may be one object."""
    code = source.code
    angles = 0
    while index + 1 < len(code) and code[index].text not in (";", "{", "}"):
        text, following = code[index].text, code[index + 1].text
        if text == "(" or (text == "[" and following == "["):
            index = source.closing[index]  # an alignment, an attribute
        elif text in ("<", ">"):
            angles += 1 if text == "<" else -1
        elif following in ("[", ";", ",") and code[index].kind == "identifier" and not angles:
            yield text
            index += 1
            while index + 1 < len(code) and code[index].text == "[":
                index = source.closing[index] + 1
            continue
        index += 1
