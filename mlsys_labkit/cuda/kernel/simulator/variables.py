"""Findings about local variables that a thread reads without having set them (source/local_reads.py)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlsys_labkit.cuda.finding import Index, KernelFinding
from mlsys_labkit.cuda.source.local_reads import unset_on_a_way
from mlsys_labkit.cuda.source.source import Source
from mlsys_labkit.cuda.source.unset import VariableReader


def variable_finding(
    record: Any, place: tuple[int, str], who: tuple[Index | None, Index | None], source: Source
) -> KernelFinding:
    """Return what a record of such a read says. ``place`` is line and text, ``who`` is block and thread."""
    (line, text), (block, thread) = place, who
    name = bytes(record["text"]).split(b"\0")[0].decode(errors="replace")
    declared = int(record["values"][0])
    if not name:  # a number that was computed from it
        name = _declared_in(source, declared)
    return KernelFinding(
        "uninitialized_variable",
        f"thread {thread} of block {block} uses {name or 'a variable'}, to which no statement on its way gave a value"
        + (f"; give it one in line {declared}, where it is declared" if declared else ""),
        line,
        text,
        block,
        thread,
        other_line=declared,
        other_source_line=source.lines[declared - 1] if 0 < declared <= len(source.lines) else "",
        array=name,
        count=int(record["count"]),
    )


def without_direct_reads(findings: Sequence[KernelFinding]) -> list[KernelFinding]:
    """Return findings with each variable of a line once: its read and what is stored show the same value."""
    found: dict[tuple[str, int, int], KernelFinding] = {}
    rest = []
    for one in findings:
        if one.kind == "uninitialized_variable":
            key = (one.kind, one.line, one.other_line)
            found[key] = min(found.get(key, one), one, key=lambda each: len(each.array))
        else:
            rest.append(one)
    return [*rest, *found.values()]


def _declared_in(source: Source, line: int) -> str:
    """Return the names of the variables without a value that a line declares."""
    reader = VariableReader(source)
    variables = (one for found in unset_on_a_way(source, reader).values() for one in found)
    return " or ".join(dict.fromkeys(one.name for one in variables if source.code[one.index].line == line))
