"""Worked answer of an exercise: folded until the reader opens it."""

from __future__ import annotations

import html
import textwrap
from dataclasses import dataclass


@dataclass(frozen=True)
class WorkedAnswer:
    """Markdown behind a line that unfolds; formulas stand between dollar signs."""

    text: str
    title: str

    def __str__(self) -> str:
        return f"{self.title}: {self.text}"

    __repr__ = __str__

    def _repr_markdown_(self) -> str:
        title = html.escape(self.title)
        return f'<details class="lk-answer"><summary>{title}</summary>\n\n{self.text}\n\n</details>'


def answer(text: str, title: str = "Answer") -> WorkedAnswer:
    """Return ``text``, in Markdown, folded under ``title``. Common indentation is removed.

    Compute the numbers of an answer in the cell that shows it, by an f-string.

    Example:
        >>> print(answer(f"The ridge is at {3.35e12 / 67e12:.2f} B/FLOP."))
        Answer: The ridge is at 0.05 B/FLOP.
    """
    return WorkedAnswer(textwrap.dedent(text).strip(), title)
