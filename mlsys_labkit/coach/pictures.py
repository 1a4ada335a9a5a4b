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
    waiting_for: str = ""

    def __str__(self) -> str:
        return f"[{self.text}: drawn once {self.waiting_for} is solved]" if self.waiting_for else self.text

    __repr__ = __str__

    def _repr_html_(self) -> str:
        text = html.escape(self.text)
        if not self.waiting_for:
            return f'<p style="margin:.2em 0 1em;font-size:.92em;font-style:italic;opacity:.85">{text}</p>'
        return (
            '<div role="note" style="border:1.5px dashed currentColor;border-radius:8px;opacity:.75;max-width:60em;'
            'padding:.3em .8em;margin:.2em 0">'
            f"<em>{text}</em> This picture draws itself once {html.escape(self.waiting_for)} is solved.</div>"
        )


@contextmanager
def picture(caption: str) -> Iterator[None]:
    """Show ``caption`` below what the body draws; after NotImplementedError (an unsolved task) show a placeholder.

    The placeholder names the unsolved function, which may belong to an earlier task than the last. The same holds for
    an error of another rank whose cause is a NotImplementedError. Any other error is raised as it is, so that a picture
    hides no bug.

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
        shown = Caption(caption, waiting_for=_function(error) or "the task above")
    else:
        shown = Caption(caption)
    display(shown, str(shown))


def _unsolved(error: BaseException | None) -> bool:
    return error is not None and (isinstance(error, NotImplementedError) or _unsolved(error.__cause__))


def _function(error: BaseException) -> str:
    """Return the name of the function of a notebook that raised ``error``; empty if the kit or no function did."""
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    if not isinstance(error, NotImplementedError) or frame is None:
        return ""
    code, module = frame.tb_frame.f_code, str(frame.tb_frame.f_globals.get("__name__"))
    own = module.partition(".")[0] == __name__.partition(".")[0]
    return code.co_name if code.co_name.isidentifier() and not own else ""
