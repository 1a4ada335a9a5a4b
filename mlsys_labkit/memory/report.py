"""A ``MemoryTrace`` as a small table, in text and in HTML."""

from __future__ import annotations

from html import escape

from mlsys_labkit.memory.trace import CATEGORIES, MemoryTrace
from mlsys_labkit.units import si

_MOST_TENSORS = 8


def text(trace: MemoryTrace) -> str:
    headline, categories, tensors, notes = _content(trace)
    lines = [headline]
    lines += [f"  {name:<12}{size:>10}" for name, size, _ in categories]
    if tensors:
        lines.append("alive at the peak, largest first")
    for size, category, name, line, code in tensors:
        lines.append(f"  {size:>10}  {category:<12}{name:<24}  {line}  {code}".rstrip())
    return "\n".join([*lines, *notes])


def html(trace: MemoryTrace) -> str:
    """Colours come from the page, so that it reads on light and dark."""
    headline, categories, tensors, notes = _content(trace)
    first = "".join(
        f'<tr><th scope="row" style="text-align:left">{name}</th>{_cell(size, "right")}<td style="text-align:left">'
        f'<span aria-hidden="true" style="display:inline-block;height:.6em;width:{160 * share:.0f}px;'
        f'background:currentColor;opacity:.55"></span></td></tr>'
        for name, size, share in categories
    )
    second = "".join(
        f"<tr>{_cell(size, 'right')}{_cell(category)}{_cell(name)}{_cell(line)}{_cell(code)}</tr>"
        for size, category, name, line, code in tensors
    )
    titles = ("bytes", "category", "tensor", "made at", "by")
    head = "".join(f'<th scope="col" style="text-align:left">{one}</th>' for one in titles)
    alive = f"<table><caption>Alive at the peak</caption><tr>{head}</tr>{second}</table>" if tensors else ""
    small = "".join(f"<p><small>{escape(note)}</small></p>" for note in notes)
    return f"<div><p><b>{escape(headline)}</b></p><table>{first}</table>{alive}{small}</div>"


def _cell(content: str, align: str = "left") -> str:
    return f'<td style="text-align:{align}">{escape(content)}</td>'


Content = tuple[str, list[tuple[str, str, float]], list[tuple[str, str, str, str, str]], list[str]]


def _content(trace: MemoryTrace) -> Content:
    peak, by_category, at_peak = trace.peak_bytes, trace.peak_by_category, trace.peak_tensors
    headline = f"peak {si(peak, 'B')} after event {trace.peak_event} of {len(trace.events)}"
    if len(trace.devices) > 1:
        headline += " (" + ", ".join(f"{one}: peak {si(trace.on(one).peak_bytes, 'B')}" for one in trace.devices) + ")"
    categories = [
        (name, si(by_category[name], "B"), by_category[name] / peak) for name in CATEGORIES if by_category[name]
    ]
    tensors = []
    for one in at_peak[:_MOST_TENSORS]:
        name = "numpy" if one.shape is None else one.name
        tensors.append((si(one.bytes, "B"), one.category, name, "before" if one.before else one.line, one.code))
    notes = []
    if len(at_peak) > _MOST_TENSORS:
        rest = sum(one.bytes for one in at_peak[_MOST_TENSORS:])
        notes.append(f"and {len(at_peak) - _MOST_TENSORS} smaller, {si(rest, 'B')} together")
    if trace.resident_before_bytes is not None and trace.resident_after_bytes is not None:
        change = trace.resident_after_bytes - trace.resident_before_bytes
        notes.append(f"process: resident {si(trace.resident_after_bytes, 'B')}, {si(change, 'B')} more than before")
    if trace.cuda is not None:
        notes.append("CUDA allocator: " + ", ".join(f"{name} {si(size, 'B')}" for name, size in trace.cuda.items()))
    return headline, categories, tensors, notes
