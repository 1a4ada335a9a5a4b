"""The look of the report: templates, styles and one small script, all inlined into the pages."""

from __future__ import annotations

from pathlib import Path

TEMPLATES = Path(__file__).parent


def stylesheet(name: str) -> str:
    """The shared styles and those of one page."""
    return "\n".join(_lean((TEMPLATES / part).read_text("utf-8")) for part in ("shared.css", name))


def script() -> str:
    """The theme switch: no page needs it to be read."""
    return _lean((TEMPLATES / "theme.js").read_text("utf-8"))


def _lean(text: str) -> str:
    return "\n".join(line.strip() for line in text.splitlines())
