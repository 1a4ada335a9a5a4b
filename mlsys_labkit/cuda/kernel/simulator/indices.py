"""Findings about an index beyond the array that the source names, as gcc's ``-fsanitize=bounds`` tells them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from mlsys_labkit.cuda.finding import Index, KernelFinding
from mlsys_labkit.cuda.source.rewrite import rewrite
from mlsys_labkit.cuda.source.source import Source

_KIND = "index_out_of_bounds"
_PLACES = ("out_of_bounds", "shared_out_of_bounds")


def index_finding(
    record: Any, place: tuple[int, str], who: tuple[Index | None, Index | None], source: str, shared: Sequence[str]
) -> KernelFinding | None:
    """Return the finding for a record of an index; None where an inner index of a ``__shared__`` array leaves its row.

    ``place`` is the line and its text, ``who`` the block and the thread, ``shared`` the names of ``__shared__`` arrays.
    Such an index may be meant: ``tile[0][i]`` runs through all rows. Hooks report it if it leaves the array.
    """
    (line, text), (block, thread) = place, who
    name, before = _indexed(_as_compiled(source, line, text), int(record["bytes"]))
    type_name = bytes(record["text"]).split(b"\0")[0].decode(errors="replace").strip("'")
    index = int(record["address"].astype("int64")) if int(record["address"]) >> 63 else int(record["address"])
    declared = bool(name) and bool(re.search(rf"[\w>*&]\s+{name}\s*\[", source))
    if before and (name in shared or not declared):
        return None
    extent = re.search(r"\[(\d+)\]", type_name)
    what = f"{name}{'[...]' * before}[{index}]" if name else f"element {index} of an array"
    size = (
        f"{'a row of it' if before else name or 'it'} has {extent[1]} elements"
        if extent
        else f"its type is {type_name}"
    )
    return KernelFinding(
        _KIND,
        f"thread {thread} of block {block} uses {what}, which is outside the array: {size}",
        line,
        text,
        block,
        thread,
        array=name,
        count=int(record["count"]),
    )


def _as_compiled(source: str, line: int, text: str) -> str:
    """Return the line as g++ got it, whose columns it tells: words may have been put into it."""
    if text not in source.splitlines()[line - 1 : line]:
        return text  # of a header
    return rewrite(Source(source)).splitlines()[line - 1]


def without_known_indices(findings: Sequence[KernelFinding]) -> list[KernelFinding]:
    """Return the findings without those about an index whose access is reported, too."""
    known = {one.line for one in findings if one.kind in _PLACES and one.array}
    told = {one.line for one in findings if one.kind == _KIND} - known
    unknown = {_KIND: known, **dict.fromkeys(_PLACES, told)}  # an access far from every array says less than its index
    return [one for one in findings if one.line not in unknown.get(one.kind, ())]


def _indexed(text: str, column: int) -> tuple[str, int]:
    """Return the array whose index ends at ``column`` (from 1), and how many indices stand before this one."""
    at, before = column - 1, -1
    if not 0 <= at < len(text) or text[at] != "]":
        return "", 0
    while at >= 0 and text[at] == "]":
        depth = 0
        while at >= 0:
            depth += {"]": 1, "[": -1}.get(text[at], 0)
            at -= 1
            if not depth:
                break
        while at >= 0 and text[at].isspace():
            at -= 1
        before += 1
    name = re.search(r"\w+$", text[: at + 1])
    return (name[0] if name else ""), before
