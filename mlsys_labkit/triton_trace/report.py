"""A trace as a table for the terminal and as HTML without a script, right in light and in dark."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING

from mlsys_labkit.timing.record import duration
from mlsys_labkit.units import plain, si

if TYPE_CHECKING:
    from mlsys_labkit.triton_trace.tracer import Trace

__all__ = ["html_report", "text_report"]

_COLUMNS = {
    "line": "of the source",
    "access": "load, store or atomic",
    "array": "the kernel's argument",
    "times": "how often programs passed it",
    "elements": "lanes that took part",
    "masked off": "lanes that did not",
    "requested": "bytes of those lanes: the traffic when nothing is kept",
    "a program once": "distinct bytes of each program, summed: an upper bound of what DRAM sees",
    "once": "distinct bytes of all programs: the lower bound",
    "source": "",
}
_NUMERIC = frozenset(("times", "elements", "masked off", "requested", "a program once", "once"))
_STYLE = """
.lk-trace{font:13px/1.45 system-ui,sans-serif;overflow-x:auto}
.lk-trace table{border-collapse:collapse;margin:.4em 0;font-size:inherit}
.lk-trace th,.lk-trace td{padding:.1em .6em;text-align:left;border:0;background:none}
.lk-trace th{border-bottom:1px solid currentColor;font-weight:600}
.lk-trace th,.lk-trace .n{white-space:nowrap}
.lk-trace .n{text-align:right;font-variant-numeric:tabular-nums}
.lk-trace td.s,.lk-trace pre{font-family:ui-monospace,monospace;white-space:pre;margin:.3em 0}
.lk-trace .note{opacity:.75}
"""


def text_report(trace: Trace) -> str:
    """What ``print(trace)`` shows: a row for each kind of access, the totals, and the findings."""
    rows = [tuple(_COLUMNS), *_rows(trace)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS) - 1)]
    lines = [_title(trace)]
    for row in rows:
        cells = [
            cell.rjust(width) if name in _NUMERIC else cell.ljust(width)
            for name, cell, width in zip(_COLUMNS, row, widths, strict=False)
        ]
        lines.append("  ".join([*cells, row[-1][:70]]).rstrip())
    return "\n".join([*lines, *_totals(trace), *map(str, trace.findings)])


def html_report(trace: Trace) -> str:
    """The same as HTML."""
    head = "".join(f'<th{_class(name)} title="{escape(note)}">{name}</th>' for name, note in _COLUMNS.items())
    body = "".join(
        "<tr>"
        + "".join(f"<td{_class(name)}>{escape(cell)}</td>" for name, cell in zip(_COLUMNS, row, strict=True))
        + "</tr>"
        for row in _rows(trace)
    )
    *totals, caveat = _totals(trace)
    told = "".join(f"<pre>{escape(str(one))}</pre>" for one in trace.findings)
    return (
        f'<div class="lk-trace"><style>{_STYLE}</style><b>{escape(_title(trace))}</b>'
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        f"{''.join(f'<div>{escape(line)}</div>' for line in totals)}"
        f'<div class="note">{escape(caveat)}</div>{told}</div>'
    )


def _rows(trace: Trace) -> list[tuple[str, ...]]:
    places = {one.line.place for one in trace.accesses}
    return [
        (
            str(one.line.number) if len(places) == 1 else str(one.line),
            one.kind,
            one.array or "?",
            f"{one.count:,}",
            f"{one.elements:,}",
            f"{one.masked_off:,}",
            si(one.bytes_requested, "B"),
            si(one.program_bytes, "B"),
            si(one.distinct_bytes, "B"),
            trace.source.line_text(*one.line),
        )
        for one in trace.accesses
    ]


def _title(trace: Trace) -> str:
    sizes = list(trace.grid)
    while len(sizes) > 1 and sizes[-1] == 1:
        sizes.pop()
    return f"{trace.kernel}, grid {' x '.join(map(str, sizes))}: {trace.programs:,} programs"


def _totals(trace: Trace) -> Iterator[str]:
    work = trace.work
    once = sum(one.program_bytes for one in trace.accesses)
    least = sum(one.distinct_loaded_bytes + one.distinct_stored_bytes for one in trace.arrays.values())
    intensity = f", {plain(work.intensity)} FLOP/B" if work.flops and work.bytes_moved else ""
    yield (
        f"asked for: {si(work.bytes_read, 'B')} read, {si(work.bytes_written, 'B')} written; DRAM sees from "
        f"{si(least, 'B')} (each byte once) to {si(once, 'B')} (each byte once a program)"
    )
    yield f"{si(work.flops, 'FLOP')}{intensity}"
    caveat = "counted by interpreting every program, not measured on a GPU"
    if trace.seconds is not None:
        what = "a smaller launch; the whole one" if trace.reduced else "copies; the launch"
        caveat = f"counted by interpreting {what} took {duration(trace.seconds)} on {trace.gpu}, measured by events"
    yield caveat


def _class(column: str) -> str:
    return ' class="n"' if column in _NUMERIC else ' class="s"' if column == "source" else ""
