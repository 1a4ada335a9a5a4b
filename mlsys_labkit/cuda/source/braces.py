"""``out[i] = float4{a, b, c, d}``: one store of a vector, which g++ would make member by member."""

from __future__ import annotations

import re
from collections.abc import Iterator

from mlsys_labkit.cuda.source.source import Edit, Source

_VECTOR = re.compile(r"(?:u?(?:char|short|int|long|longlong)|float|double)[234]")
_ENDS = (";", "{", "}", ")", "else", "do")


def brace_edits(source: Source) -> Iterator[Edit]:
    """Yield edits that pass a braced value through a function, so that g++ stores it as a whole.

    Example:
        >>> source = Source("out[i] = {a, b};")
        >>> source.edited(brace_edits(source))
        'out[i] = lk::Whole<decltype(out[i])>::of({a, b});'
    """
    code = source.code
    for index in range(1, len(code) - 2):
        opening = index + 2 if _VECTOR.fullmatch(code[index + 1].text) else index + 1
        if code[index].text == "=" and code[opening].text == "{" and (target := _assigned(source, index)):
            end = code[source.closing[opening]].end
            yield code[index + 1].start, code[index + 1].start, f"lk::Whole<decltype({target})>::of("
            yield end, end, ")"


def _assigned(source: Source, equals: int) -> str:
    """Return the left side of a statement that is an assignment; "" for a declaration, and for a plain name."""
    code = source.code
    begin = equals
    if code[equals - 1].text == ")":  # *(out + i) = ...
        begin = source.opening.get(equals - 1, 0)
        while begin > 0 and code[begin - 1].text == "*":
            begin -= 1
    while begin > 0 and code[begin - 1].text not in _ENDS:
        begin -= 1
    first, second = code[begin], code[begin + 1]
    is_element = first.kind == "identifier" and second.text in ("[", ".", "->")
    if not is_element and first.text != "*":
        return ""
    return " ".join(source.text[first.start : code[equals].start].split())
