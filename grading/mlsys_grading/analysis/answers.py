"""A student's answers and own cells, without anything that the lab gave."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mlsys_grading.examine.plan import make_plan
from mlsys_grading.lab import Lab


@dataclass(frozen=True)
class Answer:
    """One cell that a student wrote. ``cell`` is the task's name, or "cell 7" for a cell of the student's own."""

    cell: str
    source: str


def answers_of(
    lab: Lab, submission: Sequence[Mapping[str, Any]], stubs: Iterable[str] | None = None
) -> tuple[Answer, ...]:
    """Return the cells that a student wrote; stubs and the lab's other cells, if unchanged, are no answers.

    Args:
        submission: cells as ``examine.notebook.read_cells`` reads them.
        stubs: the result of :func:`released`, for callers with many students.
    """
    source = [{"cell_type": cell.kind, "source": cell.source, "metadata": cell.metadata} for cell in lab.cells]
    given = {_squeezed(text) for text in (released(lab) if stubs is None else stubs)}
    return tuple(
        Answer(cell.name, cell.source)
        for cell in make_plan(source, submission).student
        if cell.index >= 0 and cell.source.strip() and _squeezed(cell.source) not in given
    )


def released(lab: Lab) -> Iterable[str]:
    """Return the text of every code cell as the student got it."""
    from mlsys_grading.build.notebook import unsolved_notebook

    return [str(cell.source) for cell in unsolved_notebook(lab).cells if cell.cell_type == "code"]


def given_code(lab: Lab) -> Iterable[str]:
    """Return code that two honest answers may share: the released cells and the reference solutions."""
    return [*released(lab), *(cell.source for cell in lab.cells if cell.is_solution)]


def _squeezed(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip().splitlines())
