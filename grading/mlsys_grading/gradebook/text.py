"""Text that student code made, bounded and fit for files."""

from __future__ import annotations

import re

MAX_LINE = 2_000
_CUT = "\n[cut here: too long]"
_CONTROLS = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f]")


def clean(text: str, limit: int) -> str:
    """Return at most ``limit`` characters of ``text``, without what UTF-8 cannot encode."""
    text = text if len(text) <= limit else text[: max(0, limit)] + _CUT
    return text.encode("utf-8", "replace").decode("utf-8")


def one_line(text: str) -> str:
    """Put ``text`` on one line, bounded."""
    return " ".join(clean(text, MAX_LINE).split())


def printable(line: str) -> str:
    """Escape what must not reach a terminal: a name can hold newlines, control characters and reversed writing.

    Example:
        >>> printable("Zoë\\n\\u202egnp"), printable("\\tx = 1")
        ('Zoë\\\\n\\\\u202egnp', '\\tx = 1')
    """
    return "".join(each if each.isprintable() or each == "\t" else ascii(each)[1:-1] for each in line)


def without_controls(text: str, limit: int) -> str:
    """Bound a text, and remove terminal control sequences."""
    return clean(_CONTROLS.sub("", text), limit)
