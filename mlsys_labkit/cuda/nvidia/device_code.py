"""Removal of host code from a source, so that NVRTC, which compiles device code only, accepts the kernels."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence

from mlsys_labkit.cuda.source.source import Edit, Source
from mlsys_labkit.cuda.source.tokens import Token, blanked

_DEVICE_WORDS = ("__global__", "__device__", "__constant__", "__shared__", "__managed__")


def without_host_code(text: str, places: Iterable[tuple[int, int]]) -> str:
    """Return the source with the functions and variables named at ``places`` blanked; every line stays where it is.

    ``places`` are lines and columns, from 1, of the names, as NVRTC reports them. A ``constexpr`` function is marked
    for both sides instead: nvcc lets device code use its value.

    Example:
        >>> without_host_code("int main() { return 0; }\\n__global__ void f() {}", [(1, 5)]).strip()
        '__global__ void f() {}'
    """
    source = Source(text)
    code = source.code
    starts = [token.start for token in code]
    line_starts = [0, *(found.end() for found in re.finditer("\n", text))]
    edits: set[Edit] = set()
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
            edits.add((at, at, "__host__ __device__ "))
        else:
            end = code[_end(source, name)].end
            edits.add((code[begin].start, end, blanked(text[code[begin].start : end])))
    return source.edited(edits)


def _begin(code: Sequence[Token], name: int) -> int:
    begin = name
    while begin > 0:
        before = code[begin - 1].text
        label = before == ":" and begin > 1 and code[begin - 2].text in ("public", "private", "protected")
        if before in (";", "{", "}") or label:
            break
        begin -= 1
    return begin


def _end(source: Source, name: int) -> int:
    """Return the index of the last token of the declaration: its semicolon, or the bracket that closes its body."""
    code, index, in_value = source.code, name, False
    while index < len(code):
        text = code[index].text
        if text in _DEVICE_WORDS:  # the name was a macro that stands for the whole declaration
            return source.closing[name + 1] if code[name + 1].text == "(" else name
        if text == ";":
            return index
        if text == "=":
            in_value = True
        elif text in ("(", "[", "{"):
            closing = source.closing[index]
            after = code[closing + 1].text if closing + 1 < len(code) else ""
            if text == "{" and not in_value and after not in (",", "{", ";"):
                return closing
            index = closing
        index += 1
    return len(code) - 1
