"""Styles and the one script of the kit's pages, inlined into each page."""

from __future__ import annotations

from pathlib import Path

from mlsys_labkit._base import light_dark_colours

ROOM = Path(__file__).parent
TEMPLATES = ROOM / "templates"


def stylesheet(*own: Path) -> str:
    """Return the styles that all pages share and those of one page, with their colours."""
    return light_dark_colours.inlined(
        "\n".join(part.read_text("utf-8") for part in (ROOM / "shared.css", *own)), ":root"
    )


def script() -> str:
    """Return the script that switches the theme; a page is readable without it."""
    return (ROOM / "theme.js").read_text("utf-8")
