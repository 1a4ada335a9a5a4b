"""Pictures that wait for their task: an unsolved one leaves a placeholder instead of an error."""

from __future__ import annotations

import html
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from mlsys_labkit._base.cells import display


@dataclass(frozen=True)
class Caption:
    """A line under a picture, or the frame that stands in for one."""

    text: str
    waiting: bool = False

    def __str__(self) -> str:
        return f"[{self.text}: drawn once the task above is solved]" if self.waiting else self.text

    __repr__ = __str__

    def _repr_html_(self) -> str:
        text = html.escape(self.text)
        if not self.waiting:
            return f'<p style="margin:.2em 0 1em;font-size:.92em;font-style:italic;opacity:.85">{text}</p>'
        return (
            '<div role="note" style="border:1.5px dashed currentColor;border-radius:8px;opacity:.75;max-width:60em;'
            'padding:.3em .8em;margin:.2em 0">'
            f"<em>{text}</em> This picture draws itself once the task above is solved.</div>"
        )


@contextmanager
def picture(caption: str) -> Iterator[None]:
    """Show ``caption`` below what the body draws; after NotImplementedError (an unsolved task) show a placeholder.

    The same holds for an error of another rank whose cause is a NotImplementedError. Any other error is raised as it
    is, so that a picture hides no bug.

    Example:
        >>> with picture("nothing yet"):
        ...     raise NotImplementedError
        [nothing yet: drawn once the task above is solved]
    """
    try:
        yield
    except Exception as error:
        if not _unsolved(error):
            raise
        shown = Caption(caption, waiting=True)
    else:
        shown = Caption(caption)
    display(shown, str(shown))


def _unsolved(error: BaseException | None) -> bool:
    return error is not None and (isinstance(error, NotImplementedError) or _unsolved(error.__cause__))
