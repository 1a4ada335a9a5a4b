"""The templates and styles of the report of a run."""

from __future__ import annotations

from pathlib import Path

from mlsys_grading.page.render import script, stylesheet as shared

TEMPLATES = Path(__file__).parent
__all__ = ["TEMPLATES", "script", "stylesheet"]


def stylesheet(name: str) -> str:
    """Return the styles that the graders' pages share and those of one page."""
    return shared(TEMPLATES / name)
