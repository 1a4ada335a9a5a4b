"""The report's templates and styles, beside those that all pages of the kit share."""

from __future__ import annotations

from pathlib import Path

from mlsys_labkit._frontends.page import look

TEMPLATES = Path(__file__).parent
script = look.script


def stylesheet(name: str) -> str:
    """Return the styles that the graders' pages share and those of one page; an absolute ``name`` is taken as it is."""
    return look.stylesheet(TEMPLATES / "every_page.css", TEMPLATES / name)
