"""A drawing of structure: its parts, a caption, and a description for readers who cannot see it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from mlsys_labkit.drawings import svg
from mlsys_labkit.drawings.parts import Part


@dataclass(frozen=True)
class Drawing:
    """A drawing; a notebook shows it as inline SVG with its caption below.

    ``description`` says in sentences what the picture shows. ``height`` is in px, of a canvas that is 640 px wide.
    """

    title: str
    description: str
    caption: str
    height: float
    parts: Sequence[Part]

    def __repr__(self) -> str:
        return f"<Drawing: {self.title}>"

    def _repr_html_(self) -> str:
        picture = svg.draw(self.title, self.description, self.height, self.parts)
        name = escape(self.title, quote=True)
        # The picture scrolls on a phone, so the keyboard must be able to focus it.
        return (
            f'<figure class="lk-drawing" tabindex="0" aria-label="{name}"><style>{svg.STYLE}</style>{picture}'
            f"<figcaption>{escape(self.caption)}</figcaption></figure>"
        )
