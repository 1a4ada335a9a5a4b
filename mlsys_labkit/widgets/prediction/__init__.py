"""Prediction card: commit to an answer before the explanation shows."""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import Any

from mlsys_labkit.errors import LabkitError
from mlsys_labkit.widgets.base import Kind, State, paragraph, table


def prediction(
    question: str, options: Sequence[str], answer: int, because: str, name: str = "", choice: int | None = None
) -> Any:
    """Show a question with ``options``; the explanation ``because`` appears only after the reader has committed.

    ``answer`` is the index of the right option. On a live widget ``choice`` is the committed index, None before; a
    ``choice`` passed in makes an answered card.
    Raises LabkitError with fewer than two options, or an answer that is none of them.
    Reference: Crouch, Fagen, Callan, Mazur, "Classroom demonstrations: Learning tools or entertainment?", 2004.

    Example:
        >>> prediction("Does x.T copy?", ["yes", "no"], answer=1, because="Only the strides change.")
        <Prediction>
    """
    if len(options) < 2:
        raise LabkitError(f"a prediction needs at least 2 options, got {len(options)}")
    if answer not in range(len(options)):
        raise LabkitError(f"answer is an index into {len(options)} options, got {answer!r}")
    return KIND.show(
        question=question,
        options=[str(option) for option in options],
        answer=int(answer),
        because=because,
        name=name,
        choice=choice,
    )


def _static(state: State) -> str:
    # The answer is left out: without scripts the reader cannot choose, and reading it early would spoil the exercise.
    rows = zip(string.ascii_lowercase, state["options"], strict=False)
    how = f'In a notebook, lk.predict("{state["name"]}", "a") commits and answers.' if state["name"] else ""
    return (
        paragraph(state["question"]) + table("Which one? Decide before you run.", ["", "option"], rows) + paragraph(how)
    )


KIND = Kind("prediction", "Prediction", _static)
