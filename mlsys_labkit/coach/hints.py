"""Hints on demand, one rung at a time."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from mlsys_labkit.coach.notes import note
from mlsys_labkit.errors import LabkitError

_taken: Counter[str] = Counter()


@dataclass(frozen=True)
class Hint:
    """One rung of a task's ladder; a notebook shows it as Markdown."""

    task: str
    rung: int
    rungs: int
    text: str

    @property
    def ahead(self) -> str:
        """Name the hint that the next call shows."""
        if self.rung == self.rungs:
            return "That is the last hint. Hints cost no marks."
        return f'`lk.hint("{self.task}")` again for the next of {self.rungs}. Hints cost no marks.'

    def __str__(self) -> str:
        return f"Hint {self.rung} of {self.rungs}: {self.text}\n{self.ahead}"

    __repr__ = __str__

    def _repr_markdown_(self) -> str:
        quoted = self.text.replace("\n", "\n> ")
        return f"> **Hint {self.rung} of {self.rungs}.** {quoted}\n>\n> *{self.ahead}*"


def taken(task: str) -> int:
    """Count the hints of ``task`` that this kernel has shown."""
    return _taken.get(task, 0)


def hint(task: str, rung: int | None = None) -> Hint:
    """Return the next hint for ``task``: the first is a nudge, the last comes close and never shows the solution.

    ``rung`` selects a certain hint (1 is the first). Raises LabkitError for an unknown task or rung.

    Example:
        >>> print(hint("offset", 1).ahead)
        `lk.hint("offset")` again for the next of 3. Hints cost no marks.
    """
    ladder = note(task).hints
    if not ladder:
        raise LabkitError(f"there are no hints for {task!r}; its test cell's message says what is wrong")
    if rung is None:
        rung = min(_taken[task] + 1, len(ladder))
    if not 1 <= rung <= len(ladder):
        raise LabkitError(f"{task!r} has hints 1 to {len(ladder)}; you asked for {rung}")
    _taken[task] = max(_taken[task], rung)
    return Hint(task, rung, len(ladder), ladder[rung - 1])
