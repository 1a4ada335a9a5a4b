"""Predictions before a cell is run: the answer shows once the student has chosen an option."""

from __future__ import annotations

import string
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mlsys_labkit.coach.notes import Note, note
from mlsys_labkit.errors import LabkitError


@dataclass(frozen=True)
class Verdict:
    """A committed prediction and what was to be learnt from it."""

    right: bool
    chosen: str
    answer: str
    because: str

    def __str__(self) -> str:
        first = f"Yes: {self.answer}." if self.right else f"You predicted: {self.chosen}. It is: {self.answer}."
        return f"{first}\n{self.because}"

    __repr__ = __str__

    def _repr_markdown_(self) -> str:
        return "> **" + str(self).replace("\n", "**\n>\n> ", 1).replace("\n", "\n> ")


_committed: dict[str, int] = {}  # by task, so that running the cell again keeps the choice
_keepers: list[Callable[[str, str | None], None]] = []


def predict(task: str, choice: str | None = None, *, again: bool = False) -> Any:
    """Show a card with the task's question. After the reader has chosen an option, it shows the answer.

    ``choice`` ("a", "b", ...) chooses from the keyboard alone, where no widget can be drawn. The function never
    waits for input, so a headless run is not blocked. A choice is kept with the notebook's progress: it stays when
    all cells run again and when the kernel restarts; ``again`` clears it.
    Raises LabkitError for an unknown task or letter.

    Example:
        >>> predict("offset", "a").right
        False
    """
    asked = note(task)
    if not asked.question:
        raise LabkitError(f"{task!r} asks no question; lk.hint({task!r}) has its hints")
    if choice is not None:
        return _commit(asked, choice)
    from mlsys_labkit import widgets

    if again:
        _committed.pop(task, None)
        _keep(task, None)
    card = widgets.prediction(
        question=asked.question,
        options=list(asked.options),
        answer=asked.answer,
        because=asked.because,
        name=task,
        choice=_committed.get(task),
    )
    if hasattr(card, "observe"):  # without anywidget the card runs in the page only
        card.observe(lambda change: _choose(asked, change["new"]), "choice")
    return card


def keep_with(keeper: Callable[[str, str | None], None]) -> None:
    """Call ``keeper`` with the task and the text of the option after each choice; with None after one was cleared."""
    if keeper not in _keepers:
        _keepers.append(keeper)


def forget(keeper: Callable[[str, str | None], None]) -> None:
    """Stop calling ``keeper``."""
    if keeper in _keepers:
        _keepers.remove(keeper)


def restore(task: str, mark: str, marking: Callable[[str], str]) -> None:
    """Take up the option that an earlier kernel kept as ``mark = marking(option)``, unless this kernel has a choice.

    An option that is no longer offered leaves the card open, as does a task that asks nothing any more.
    """
    if task in _committed:
        return
    try:
        options = note(task).options
    except LabkitError:
        return
    found = next((index for index, option in enumerate(options) if marking(option) == mark), None)
    if found is not None:
        _committed[task] = found


def _choose(asked: Note, index: Any) -> None:
    if type(index) is int and 0 <= index < len(asked.options):
        _committed[asked.task] = index
        _keep(asked.task, asked.options[index])


def _keep(task: str, option: str | None) -> None:
    for keeper in _keepers:
        keeper(task, option)


def _commit(asked: Note, choice: str) -> Verdict:
    letters = string.ascii_lowercase[: len(asked.options)]
    if len(choice) != 1 or choice.lower() not in letters:
        raise LabkitError(f"choose one of {', '.join(letters)} for {asked.task!r}; you wrote {choice!r}")
    index = letters.index(choice.lower())
    _choose(asked, index)
    return Verdict(index == asked.answer, asked.options[index], asked.options[asked.answer], asked.because)
