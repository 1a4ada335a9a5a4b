"""Summaries: a paragraph that begins with "In short." gets a class, by which the page sets it apart."""

from __future__ import annotations

from docutils import nodes
from sphinx.application import Sphinx


def _mark(app: Sphinx, doctree: nodes.document) -> None:
    for paragraph in doctree.findall(nodes.paragraph):
        if paragraph.astext().startswith("In short."):
            paragraph["classes"].append("in-short")


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("doctree-read", _mark)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
