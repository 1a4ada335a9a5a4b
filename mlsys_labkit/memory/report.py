"""The summary of a ``MemoryTrace`` as a small table, in text and in HTML."""

from __future__ import annotations

from html import escape
from typing import NamedTuple


class Summary(NamedTuple):
    """The rows of the table, every number already written with its unit."""

    headline: str
    categories: list[tuple[str, str, float]]  # name, bytes, share of the peak
    tensors: list[tuple[str, str, str, str, str]]  # bytes, category, name, line, code
    notes: list[str]


def text(summary: Summary) -> str:
    """Return the table as plain text."""
    headline, categories, tensors, notes = summary
    lines = [headline]
    lines += [f"  {name:<12}{size:>10}" for name, size, _ in categories]
    if tensors:
        lines.append("alive at the peak, largest first")
    for size, category, name, line, code in tensors:
        lines.append(f"  {size:>10}  {category:<12}{name:<24}  {line}  {code}".rstrip())
    return "\n".join([*lines, *notes])


def html(summary: Summary) -> str:
    """Return the table as HTML in the colours of the page, light or dark."""
    headline, categories, tensors, notes = summary
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
    titles = ("bytes", "category", "what", "made at", "by")
    head = "".join(f'<th scope="col" style="text-align:left">{one}</th>' for one in titles)
    alive = f"<table><caption>Alive at the peak</caption><tr>{head}</tr>{second}</table>" if tensors else ""
    small = "".join(f"<p><small>{escape(note)}</small></p>" for note in notes)
    return f"<div><p><b>{escape(headline)}</b></p><table>{first}</table>{alive}{small}</div>"


def _cell(content: str, align: str = "left") -> str:
    return f'<td style="text-align:{align}">{escape(content)}</td>'
