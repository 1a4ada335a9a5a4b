"""The text that asks for an answer: what stands above its cell since the last heading."""

from __future__ import annotations

import re

_HEADING = re.compile(r"#{1,6}\s+(.+?)\s*#*")
_FENCE = re.compile(r"\s*(```|~~~)")


def since_heading(markdown: str) -> tuple[str, str]:
    """Return the last heading of a text, without its marks, and the text below it; "" if there is no heading.

    Example:
        >>> since_heading("# One\\n\\nMuch.\\n\\n## Two ##\\n\\n```\\n# no heading\\n```\\n")
        ('Two', '```\\n# no heading\\n```')
    """
    heading, below, fence = "", 0, ""
    lines = markdown.splitlines()
    for at, line in enumerate(lines):
        if opened := _FENCE.match(line):
            fence = "" if fence == opened[1] else fence or opened[1]
        elif not fence and (found := _HEADING.fullmatch(line)):
            heading, below = found[1], at + 1
    return heading, "\n".join(lines[below:]).strip("\n")
