"""Links of the labs to chapters, for the places that labs reach without the course text."""

from __future__ import annotations

import re

_LINK = re.compile(r"\[(?P<text>[^\]]+)\]\((?:\.\./)+course/chapters/(?P<name>\w+)\.md(?P<part>#[\w-]+)?\)")


def served_chapters(text: str, address: str) -> str:
    """Return the text with links to the chapters at ``address``, or with the names of chapters alone if it is empty.

    Example:
        >>> served_chapters("See [Chapter 7](../../course/chapters/07_tiling.md#why).", "https://ada.example.edu/")
        'See [Chapter 7](https://ada.example.edu/07_tiling.html#why).'
        >>> served_chapters("See [Chapter 7](../../course/chapters/07_tiling.md#why).", "")
        'See Chapter 7.'
    """
    return _LINK.sub(lambda link: _link(link, address), text)


def _link(link: re.Match[str], address: str) -> str:
    text, name, part = link["text"], link["name"], link["part"] or ""
    return f"[{text}]({address.rstrip('/')}/{name}.html{part})" if address else text
