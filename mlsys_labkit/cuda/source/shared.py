"""``__shared__``: its dynamic arrays, which all begin at one address, and what no such variable may have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mlsys_labkit.cuda.source.scopes import ANONYMOUS, namespaces
from mlsys_labkit.cuda.source.tokens import Token, code_tokens, matching

__all__ = ["SYMBOL", "dynamic_arrays", "initialized_shared"]

SYMBOL = "lk_dynamic_shared"  # the one array that all of them are other names of


def dynamic_arrays(tokens: Sequence[Token]) -> tuple[str, ...]:
    """The names that the linker knows them by. A declaration in a function belongs to the namespace around it.

    Example:
        >>> from mlsys_labkit.cuda.source.tokens import tokenize
        >>> dynamic_arrays(tokenize("extern __shared__ float4 a[], b[][4]; namespace q { extern __shared__ int c[]; }"))
        ('a', 'b', '_ZN1q1cE')
    """
    code = code_tokens(tokens)
    around = namespaces(code)
    found: dict[str, None] = {}
    for index, token in enumerate(code):
        if token.text == "__shared__" and "extern" in _specifiers(code, index):
            for name in _declarators(code, index):
                found.update(dict.fromkeys(_mangled((*around[index], name))))
    return tuple(found)


def initialized_shared(tokens: Sequence[Token]) -> tuple[int, ...]:
    """Lines where a shared variable is given a value as it is declared. g++ would give it once, and nvcc refuses it.

    Example:
        >>> from mlsys_labkit.cuda.source.tokens import tokenize
        >>> initialized_shared(tokenize("__shared__ int n = 0;"))
        (1,)

    Reference: CUDA C++ programming guide, "Device memory space specifiers".
    """
    code = code_tokens(tokens)
    return tuple(
        token.line for index, token in enumerate(code) if token.text == "__shared__" and _has_value(code, index)
    )


def _has_value(code: Sequence[Token], index: int) -> bool:
    angles = 0
    while index + 1 < len(code) and code[index].text not in (";", "}"):
        before, text, following = code[index - 1], code[index].text, code[index + 1].text
        if text in ("(", "[", "{"):
            index = matching(code, index)
        elif text in ("<", ">"):
            angles += 1 if text == "<" else -1
        elif text == "=" and not angles and following != "=" and (before.kind == "identifier" or before.text == "]"):
            return True
        index += 1
    return False


def _mangled(path: tuple[str, ...]) -> tuple[str, ...]:
    """As the Itanium C++ ABI writes a variable's name. Of an unnamed namespace's, g++ 15 says that it is local (L)."""
    if len(path) == 1:
        return path
    *around, name = (f"{len(part)}{part}" for part in ("_GLOBAL__N_1" if one == ANONYMOUS else one for one in path))
    marks = ("", "L") if ANONYMOUS in path else ("",)
    return tuple(f"_ZN{''.join(around)}{mark}{name}E" for mark in marks)


def _specifiers(code: Sequence[Token], index: int) -> set[str]:
    """Words of the declaration, on both sides of ``__shared__``."""
    begin = index
    while begin > 0 and code[begin - 1].text not in (";", "{", "}", ")"):
        begin -= 1
    end = index
    while end < len(code) and code[end].text not in (";", "[", "{", "}"):
        end += 1
    return {token.text for token in code[begin:end]}


def _declarators(code: Sequence[Token], index: int) -> Iterator[str]:
    """The names in front of the brackets."""
    angles = 0
    while index + 1 < len(code) and code[index].text not in (";", "{", "}"):
        text, following = code[index].text, code[index + 1].text
        if text == "(" or (text == "[" and following == "["):
            index = matching(code, index)  # an alignment, an attribute
        elif text in ("<", ">"):
            angles += 1 if text == "<" else -1
        elif following == "[" and code[index].kind == "identifier" and not angles:
            yield text
            index += 1
            while index + 1 < len(code) and code[index].text == "[":
                index = matching(code, index) + 1
            continue
        index += 1
