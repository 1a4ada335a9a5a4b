"""``out[i] = float4{a, b, c, d}``: one store of a vector, which g++ would make member by member."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from mlsys_labkit.cuda.source.tokens import Token, code_tokens, matching
from mlsys_labkit.cuda.source.unroll import Edit

__all__ = ["brace_edits"]

_VECTOR = re.compile(r"(?:u?(?:char|short|int|long|longlong)|float|double)[234]")
_ENDS = (";", "{", "}", ")", "else", "do")


def brace_edits(source: str, tokens: Sequence[Token]) -> Iterator[Edit]:
    """Each such value handed through a function, so that it is made first and stored as a whole.

    Example:
        >>> from mlsys_labkit.cuda.source.rewrite import rewrite
        >>> rewrite("out[i] = {a, b};")
        'out[i] = lk::Whole<decltype(out[i])>::of({a, b});'
    """
    code = code_tokens(tokens)
    for index in range(1, len(code) - 2):
        opening = index + 2 if _VECTOR.fullmatch(code[index + 1].text) else index + 1
        if code[index].text == "=" and code[opening].text == "{" and (target := _assigned(source, code, index)):
            closing = code[matching(code, opening)]
            yield code[index + 1].start, code[index + 1].start, f"lk::Whole<decltype({target})>::of("
            yield closing.end, closing.end, ")"


def _assigned(source: str, code: Sequence[Token], equals: int) -> str:
    """The left side of a statement that is an assignment; "" for a declaration, and for a plain name."""
    begin = equals
    if code[equals - 1].text == ")":  # *(out + i) = ...
        depth = 0
        while begin > 0:
            begin -= 1
            depth += {")": 1, "(": -1}.get(code[begin].text, 0)
            if depth == 0:
                break
        while begin > 0 and code[begin - 1].text == "*":
            begin -= 1
    while begin > 0 and code[begin - 1].text not in _ENDS:
        begin -= 1
    first, second = code[begin], code[begin + 1]
    is_element = first.kind == "identifier" and second.text in ("[", ".", "->")
    if not is_element and first.text != "*":
        return ""
    return " ".join(source[first.start : code[equals].start].split())
