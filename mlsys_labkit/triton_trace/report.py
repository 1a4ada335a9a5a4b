"""``LaunchTrace``: the counts and findings of one launch, with its table as text and as HTML without a script."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from html import escape

from mlsys_labkit._base.text_table import text_table
from mlsys_labkit._base.units import plain, si
from mlsys_labkit.timing.record import duration
from mlsys_labkit.triton_trace.count.counts import Access, ArrayTraffic
from mlsys_labkit.triton_trace.count.finding import AccessFinding
from mlsys_labkit.triton_trace.count.log import AccessLog
from mlsys_labkit.triton_trace.count.reuse import Reuse, reuse
from mlsys_labkit.triton_trace.errors import TritonTraceError
from mlsys_labkit.triton_trace.recorder import Program
from mlsys_labkit.triton_trace.source import KernelSource
from mlsys_labkit.work import Work

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
_KEPT = "requested: every access; a program once: a byte counts once for each program; once: once for all programs"
_NUMERIC = frozenset(("times", "elements", "masked off", "requested", "a program once", "once"))
_STYLE = """
.lk-trace{font:13px/1.45 system-ui,sans-serif;overflow-x:auto}
.lk-trace table{border-collapse:collapse;margin:.4em 0;font-size:inherit}
.lk-trace th,.lk-trace td{padding:.1em .6em;text-align:left;border:0;background:none}
.lk-trace th{border-bottom:1px solid currentColor;font-weight:600}
.lk-trace th,.lk-trace .n{white-space:nowrap}
.lk-trace .n{text-align:right;font-variant-numeric:tabular-nums}
.lk-trace td.s,.lk-trace pre{font-family:ui-monospace,monospace;white-space:pre-wrap;margin:.3em 0}
.lk-trace td.s{min-width:30ch}
.lk-trace .note{opacity:.75}
"""


@dataclass(frozen=True)
class LaunchTrace:
    """Counts of one launch over all its programs. They were taken without a GPU, unless ``seconds`` is given.

    Attributes:
        kernel, grid, programs: the launch. source: the kernel's text.
        work: FLOPs of dots and of floating-point arithmetic, by the rules of work.conventions but of whole blocks, with
            the lanes that pad them; and the bytes that the programs request: without masked-off lanes, and with
            nothing kept in a cache.
        accesses: one for each source line, array and kind. arrays: parameter name -> its traffic.
        dot_flops: FLOPs of ``tl.dot``, two per multiply-add, of whole blocks with their padding.
        findings: errors and slow accesses; see finding.AccessFinding.
        output: text that the kernel printed.
        seconds: time of the launch on ``gpu``, by events (median of many); None when no GPU ran it, as without a GPU or
            when it accesses memory outside its arrays.
        reduced: everything but ``seconds`` describes a smaller launch.
        log: every access.
    """

    kernel: str
    source: KernelSource = field(repr=False)
    grid: Program
    programs: int
    work: Work
    accesses: tuple[Access, ...] = field(repr=False)
    arrays: Mapping[str, ArrayTraffic] = field(repr=False)
    dot_flops: int
    findings: tuple[AccessFinding, ...]
    log: AccessLog = field(repr=False, compare=False)
    output: str = field(default="", repr=False)
    gpu: str = ""
    seconds: float | None = None
    reduced: bool = False

    def l2_bytes(self, capacity_bytes: float, programs_at_once: int = 1) -> int:
        """Return the bytes that a cache of ``capacity_bytes`` fetches: fully associative, 128-byte lines, LRU.

        Programs run in the order of the trace, ``programs_at_once`` of them taking turns by access. This is a model: a
        real L2 is set-associative and hashed, and a GPU chooses the order of programs. Stores fetch like loads.

        Example:
            >>> import numpy as np, triton, triton.language as tl
            >>> from mlsys_labkit.triton_trace import trace
            >>> @triton.jit
            ... def total(x, out, n, BLOCK: tl.constexpr):
            ...     i = tl.arange(0, BLOCK)
            ...     tl.store(out + tl.program_id(0), tl.sum(tl.load(x + i, mask=i < n, other=0.0), 0))
            >>> traced = trace(total)[(4,)](np.ones(64, np.float32), np.zeros(4, np.float32), 64, BLOCK=64)
            >>> traced.l2_bytes(384), traced.l2_bytes(256)   # x is two lines of 128 bytes and out is one
            (384, 1536)

        Reference: R. Mattson et al., Evaluation techniques for storage hierarchies, IBM Systems Journal 9(2), 1970.
        """
        return self.reuse(programs_at_once).missed_bytes(capacity_bytes)

    def reuse(self, programs_at_once: int = 1) -> Reuse:
        """Return the reuse distances of the launch's cache lines, from which ``l2_bytes`` is computed."""
        if programs_at_once < 1:
            raise TritonTraceError(f"expected at least 1 program at once, got {programs_at_once}")
        return reuse(self.log, programs_at_once)

    def __str__(self) -> str:
        return _text(self)

    def _repr_html_(self) -> str:
        return _html(self)


def _text(trace: LaunchTrace) -> str:
    rows = [(*row[:-1], row[-1][:70]) for row in (tuple(_COLUMNS), *_rows(trace))]
    right = [column for column, name in enumerate(_COLUMNS) if name in _NUMERIC]
    return "\n".join([_title(trace), *text_table(rows, right), *_totals(trace), *map(str, trace.findings)])


def _html(trace: LaunchTrace) -> str:
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


def _rows(trace: LaunchTrace) -> list[tuple[str, ...]]:
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


def _title(trace: LaunchTrace) -> str:
    sizes = list(trace.grid)
    while len(sizes) > 1 and sizes[-1] == 1:
        sizes.pop()
    return f"{trace.kernel}, grid {' x '.join(map(str, sizes))}: {trace.programs:,} programs"


def _totals(trace: LaunchTrace) -> Iterator[str]:
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
    if trace.gpu and trace.seconds is None:
        caveat = f"counted by interpreting copies; not run on {trace.gpu}, because it leaves its arrays"
    elif trace.seconds is not None:
        what = "a smaller launch; the whole one" if trace.reduced else "copies; the launch"
        caveat = f"counted by interpreting {what} took {duration(trace.seconds)} on {trace.gpu}, measured by events"
    yield f"{_KEPT}; {caveat}"


def _class(column: str) -> str:
    return ' class="n"' if column in _NUMERIC else ' class="s"' if column == "source" else ""
