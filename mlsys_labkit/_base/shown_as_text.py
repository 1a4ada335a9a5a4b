"""``shown_as_text``: how a notebook shows a value whose text is for readers and whose ``repr`` is for debugging."""

from __future__ import annotations

from typing import Any


def shown_as_text(self: object, printer: Any, cycle: bool) -> None:
    """Print the text of ``self`` line by line, also within a list.

    A class takes it as its ``_repr_pretty_``. A base class could not hand it down: IPython prefers the ``repr`` that a
    dataclass writes.
    """
    for at, line in enumerate(str(self).splitlines()):
        if at:
            printer.break_()
        printer.text(line)
