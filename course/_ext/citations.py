"""Citations: a number in square brackets leads to its reference, and shows it under the pointer."""

from __future__ import annotations

import re

from docutils import nodes
from sphinx.application import Sphinx

_CITATION = re.compile(r"\[(\d+(?:, \d+)*)(?=[,\]])")
_NOT_PROSE = (nodes.literal, nodes.FixedTextElement, nodes.math, nodes.reference, nodes.title)


def _link(app: Sphinx, doctree: nodes.document, page: str) -> None:
    last = next((section for section in doctree.findall(nodes.section) if "references" in section["ids"]), None)
    if app.builder.format != "html" or last is None:
        return
    listed = list(last.findall(nodes.list_item))
    for number, item in enumerate(listed, 1):
        item["ids"].append(f"reference-{number}")
    for text in list(doctree.findall(nodes.Text)):
        above = _above(text)
        if last not in above and not any(isinstance(node, _NOT_PROSE) for node in above):
            linked = _linked(text, [item.astext() for item in listed])
            if len(linked) > 1:
                text.parent.replace(text, linked)


def _above(node: nodes.Node) -> list[nodes.Node]:
    above = []
    while node.parent is not None:
        node = node.parent
        above.append(node)
    return above


def _linked(text: nodes.Text, listed: list[str]) -> list[nodes.Node]:
    """Return the text in pieces, in which each cited number that is listed is a link."""
    made: list[nodes.Node] = []
    written = 0
    for citation in _CITATION.finditer(text):
        for number in re.finditer(r"\d+", citation[1]):
            which, start = int(number[0]), citation.start(1) + number.start()
            if 1 <= which <= len(listed):
                made.append(nodes.Text(text[written:start]))
                link = {"refuri": f"#reference-{which}", "reftitle": listed[which - 1], "internal": True}
                made.append(nodes.reference("", number[0], **link))
                written = start + len(number[0])
    return [*made, nodes.Text(text[written:])]


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("doctree-resolved", _link)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
