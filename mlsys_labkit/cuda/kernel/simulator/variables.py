"""Findings about local variables that a thread reads without having set them (source/local_reads.py)."""

from __future__ import annotations

from typing import Any

from mlsys_labkit.cuda.finding import Index, KernelFinding


def variable_finding(
    record: Any, place: tuple[int, str], who: tuple[Index | None, Index | None], source: list[str]
) -> KernelFinding:
    """Return what a record of such a read says. ``place`` is line and text, ``who`` is block and thread."""
    (line, text), (block, thread) = place, who
    name = bytes(record["text"]).split(b"\0")[0].decode(errors="replace")
    declared = int(record["values"][0])
    return KernelFinding(
        "uninitialized_variable",
        f"thread {thread} of block {block} uses {name}, to which no statement on its way gave a value; give it one in "
        f"line {declared}, where it is declared",
        line,
        text,
        block,
        thread,
        other_line=declared,
        other_source_line=source[declared - 1] if 0 < declared <= len(source) else "",
        array=name,
        count=int(record["count"]),
    )
