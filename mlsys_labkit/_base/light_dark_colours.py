"""The colours of widgets, pages, slides, the roofline's SVG and plotly figures, on light and on dark pages.

A style sheet uses a colour as ``var(--lk-NAME)``, and :func:`inlined` declares the colours that it uses. For a part of
another page, :func:`themed` also follows that page's theme.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class Colour(NamedTuple):
    """One colour on light pages, on dark pages, and in plotly figures, which cannot follow the theme of their page."""

    light: str
    dark: str
    figure: str = ""


COLOURS = {
    # Surfaces, lines and text.
    "page": Colour("#fdfdfb", "#121417"),
    "paper": Colour("#ffffff", "#15181d"),
    "wash": Colour("#f4f6f8", "#1d2127"),
    "rule": Colour("#d9dee4", "#353c46"),
    "edge": Colour("#7a848f", "#7f8a96"),
    "ink": Colour("#1b2027", "#e7eaee", "#7a7a7a"),
    "soft": Colour("#56606b", "#a4adb8"),
    # Data, in the order in which a picture takes them. Each stands out by 4.5:1 as text, and by 3:1 in a figure.
    "blue": Colour("#0a5fa5", "#66b2f4", "#2a7fbf"),
    "orange": Colour("#ad4e00", "#f2a553", "#cc5a00"),
    "green": Colour("#04735a", "#48c7a2", "#0b8f70"),
    "purple": Colour("#8a3b90", "#d99ade", "#a9609c"),
    "red": Colour("#b3261e", "#ff8f86", "#d9453c"),
    "olive": Colour("#6d6200", "#d8c95c", "#8a7000"),
    "indigo": Colour("#5b5bd6", "#a5a5ff", "#7a6fd0"),
    "grey": Colour("#4d5b66", "#b9c4cf", "#7c7c7c"),
    # Warnings, and names of built-ins in highlighted code.
    "amber": Colour("#8f5400", "#f0b45c", "#b8860b"),
    "teal": Colour("#1d6a86", "#6cc5dd"),
    # The background of a marked line.
    "mark": Colour("#fdeeb5", "#45390f"),
}

# The parts of a roofline, in its SVG and its plotly figure.
COLOURS |= {
    "roofline-compute-ceiling": COLOURS["blue"],
    "roofline-memory-ceiling": COLOURS["orange"],
    "roofline-point": COLOURS["green"],
    "roofline-above-roof": COLOURS["red"],
}
FIGURE_GRID = "rgba(128,128,128,0.28)"
_THEME = (
    "{root}{{color-scheme:light dark}}"
    '[data-jp-theme-light="true"] {root},[data-theme="light"] {root}{{color-scheme:light}}'
    '[data-jp-theme-light="false"] {root},[data-theme="dark"] {root}{{color-scheme:dark}}'
)
_USE = re.compile(r"var\(--lk-([a-z-]+)")
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)


def inlined(css: str, root: str) -> str:
    """Return ``css`` in one line without comments, after a rule that gives ``root`` the palette's colours in it.

    Example:
        >>> inlined("/* Text. */ p { color: var(--lk-ink) }", ":root")
        ':root{--lk-ink:light-dark(#1b2027,#e7eaee);}p { color: var(--lk-ink) }'
    """
    used = [name for name in dict.fromkeys(_USE.findall(css)) if name in COLOURS]
    values = "".join(f"--lk-{name}:light-dark({COLOURS[name].light},{COLOURS[name].dark});" for name in used)
    return f"{root}{{{values}}}{' '.join(_COMMENT.sub('', css).split())}"


def themed(css: str, root: str) -> str:
    """Return what :func:`inlined` returns, and the rules by which ``root`` follows the page that it is a part of.

    JupyterLab and the course's site say which theme they have; elsewhere the reader's system does.
    """
    return _THEME.format(root=root) + inlined(css, root)
