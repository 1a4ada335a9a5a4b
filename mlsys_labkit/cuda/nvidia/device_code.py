"""Host code taken out of a source, so that a compiler without a host accepts the kernels beside it."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence

from mlsys_labkit.cuda.source.tokens import Token, code_tokens, matching, tokenize

__all__ = ["without_host_code"]

_DEVICE_WORDS = ("__global__", "__device__", "__constant__", "__shared__", "__managed__")


def without_host_code(source: str, places: Iterable[tuple[int, int]]) -> str:
    """The source with the functions and variables that are named at ``places`` blanked; every line stays where it is.

    ``places`` are lines and columns, from 1, of the names, as NVRTC reports them. A ``constexpr`` function is marked
    for both sides instead: nvcc lets device code use its value.

    Example:
        >>> without_host_code("int main() { return 0; }\\n__global__ void f() {}", [(1, 5)]).strip()
        '__global__ void f() {}'
    """
    code = code_tokens(tokenize(source))
    starts = [token.start for token in code]
    line_starts = [0, *(found.end() for found in re.finditer("\n", source))]
    edits: list[tuple[int, int, str]] = []
    for line, column in places:
        if not 1 <= line <= len(line_starts):
            continue
        name = bisect_right(starts, line_starts[line - 1] + column - 1) - 1
        if name < 0:
            continue
        begin = _begin(code, name)
        words = [token.text for token in code[begin:name]]
        if "constexpr" in words:
            at = code[begin + words.index("constexpr")].start
            edits.append((at, at, "__host__ __device__ "))
        else:
            end = code[_end(code, begin, name)].end
            edits.append((code[begin].start, end, re.sub(r"[^\n]", " ", source[code[begin].start : end])))
    for start, end, text in sorted(set(edits), reverse=True):
        source = source[:start] + text + source[end:]
    return source


def _begin(code: Sequence[Token], name: int) -> int:
    begin = name
    while begin > 0:
        before = code[begin - 1].text
        label = before == ":" and begin > 1 and code[begin - 2].text in ("public", "private", "protected")
        if before in (";", "{", "}") or label:
            break
        begin -= 1
    return begin


def _end(code: Sequence[Token], begin: int, name: int) -> int:
    """Index of the last token of the declaration: its semicolon, or the bracket that closes its body."""
    index, in_value = name, False
    while index < len(code):
        text = code[index].text
        if text in _DEVICE_WORDS:  # the name was a macro that stands for the whole declaration
            return matching(code, name + 1) if code[name + 1].text == "(" else name
        if text == ";":
            return index
        if text == "=":
            in_value = True
        elif text in ("(", "[", "{"):
            closing = matching(code, index)
            after = code[closing + 1].text if closing + 1 < len(code) else ""
            if text == "{" and not in_value and after not in (",", "{", ";"):
                return closing
            index = closing
        index += 1
    return len(code) - 1
