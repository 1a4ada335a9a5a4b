"""Markdown of a lab as HTML for a page that has no other file beside it."""

from __future__ import annotations

import re
from functools import lru_cache

from markupsafe import Markup

_PICTURE = re.compile(r'<img\b[^>]*?\balt="([^"]*)"[^>]*>|<img\b[^>]*>')
_LINK_TO_A_FILE = re.compile(r'<a href="(?!https?:)[^"]*"[^>]*>(.*?)</a>', re.DOTALL)


@lru_cache(maxsize=256)  # the tasks of a lab are the same for every student
def to_html(source: str) -> Markup:
    """Convert Markdown with formulas. HTML in it is escaped; pictures and links to files become their text.

    Example:
        >>> str(to_html("A [chapter](../05.md), *now* <b>")).strip()
        '<p>A chapter, <em>now</em> &lt;b&gt;</p>'
    """
    from mlsys_labkit._frontends.page.exporter import markdown_to_html

    page = _PICTURE.sub(lambda found: found[1] or "", markdown_to_html(source))
    return Markup(_LINK_TO_A_FILE.sub(r"\1", page))  # made here from escaped text
