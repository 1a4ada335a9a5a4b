"""Parts as inline SVG: it follows the page's light or dark theme, and has a description for screen readers."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from html import escape
from importlib.resources import files

from mlsys_labkit._base import light_dark_colours
from mlsys_labkit.drawings.parts import Arrow, Box, Label, Part

WIDTH = 640
LINE = 17.0  # from one line of text to the next, in px
_HEAD = 7.0
STYLE = light_dark_colours.themed(files(__package__).joinpath("svg.css").read_text(encoding="utf-8"), ".lk-drawing")


def draw(title: str, description: str, height: float, parts: Sequence[Part]) -> str:
    """Return one ``<svg>`` element."""
    key = hashlib.sha256((title + description).encode()).hexdigest()[:8]  # unique in the page, equal in every build
    order = {Box: 0, Arrow: 1, Label: 2}  # text stands above lines
    shapes = [_shape(part) for part in sorted(parts, key=lambda part: order[type(part)])]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" role="img" '
            f'aria-labelledby="lk-{key}-t lk-{key}-d">',
            f'<title id="lk-{key}-t">{escape(title)}</title>',
            f'<desc id="lk-{key}-d">{escape(description)}</desc>',
            *shapes,
            "</svg>",
        ]
    )


def without_words(height: float, parts: Sequence[Part]) -> str:
    """Return an ``<svg>`` element of the shapes alone: an ornament, which screen readers skip."""
    shapes = (_shape(replace(part, text="") if isinstance(part, Box) else part) for part in parts)
    kept = "".join(shape for shape, part in zip(shapes, parts, strict=True) if not isinstance(part, Label))
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" aria-hidden="true">{kept}</svg>'


def _shape(part: Part) -> str:
    match part:
        case Box():
            return _box(part)
        case Arrow():
            return _arrow(part)
        case Label():
            bold = " bold" if part.bold else ""
            return f'<g class="{part.role}{bold} label">{_text(part.x, part.y, part.text, part.anchor)}</g>'


def _box(box: Box) -> str:
    corner = 4 if min(box.width, box.height) > 24 else 2
    rect = f'<rect x="{box.x:g}" y="{box.y:g}" width="{box.width:g}" height="{box.height:g}" rx="{corner}"/>'
    lines = box.text.count("\n") + 1
    x, middle = box.top[0], box.left[1]
    first = box.y + 18 if box.holds else middle + 5 - (lines - 1) * LINE / 2
    holds = " holds" if box.holds else ""
    return f'<g class="{box.role}{holds}">{rect}{_text(x, first, box.text) if box.text else ""}</g>'


def _text(x: float, y: float, text: str, anchor: str = "middle") -> str:
    lines = [
        f'<tspan x="{x:g}" y="{y + at * LINE:g}">{escape(line)}</tspan>' for at, line in enumerate(text.split("\n"))
    ]
    return f'<text text-anchor="{anchor}">{"".join(lines)}</text>'


def _arrow(arrow: Arrow) -> str:
    points = list(arrow.points)
    path = "M" + " L".join(f"{x:g},{y:g}" for x, y in points)
    heads = "".join(_heads(arrow, points))
    dashed = " dashed" if arrow.dashed else ""
    return f'<g class="{arrow.role}"><path class="line{dashed}" d="{path}"/>{heads}</g>'


def _heads(arrow: Arrow, points: list[tuple[float, float]]) -> Iterator[str]:
    if arrow.heads in ("end", "both"):
        yield _head(points[-2], points[-1])
    if arrow.heads == "both":
        yield _head(points[1], points[0])


def _head(start: tuple[float, float], end: tuple[float, float]) -> str:
    angle = math.atan2(end[1] - start[1], end[0] - start[0])
    corners = [
        (end[0] - _HEAD * math.cos(angle + turn), end[1] - _HEAD * math.sin(angle + turn)) for turn in (0.45, -0.45)
    ]
    (x1, y1), (x2, y2) = corners
    return f'<path class="head" d="M{end[0]:.1f},{end[1]:.1f} L{x1:.1f},{y1:.1f} L{x2:.1f},{y2:.1f} z"/>'
