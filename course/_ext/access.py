"""Additions to the theme for readers who use a keyboard or a screen reader."""

from __future__ import annotations

from typing import Any

from sphinx.application import Sphinx


def _mend(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    # Wide listings scroll, so the keyboard must be able to focus them.
    body = context.get("body", "").replace("<pre>", '<pre tabindex="0">')
    levels = {"body": body, "furo_navigation_tree": context.get("furo_navigation_tree") or ""}
    context |= {
        name: text.replace('role="heading">', 'role="heading" aria-level="2">') for name, text in levels.items()
    }


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("html-page-context", _mend, priority=900)  # after the theme has made its tree
    return {"parallel_read_safe": True, "parallel_write_safe": True}
