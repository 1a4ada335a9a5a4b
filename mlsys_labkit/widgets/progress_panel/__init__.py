"""Progress panel: the tasks of a lab in order, and which of them pass the checks that a student sees."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mlsys_labkit.widgets.base import Kind, State, paragraph, table

HEAD = ("task", "state", "points", "hints")


def progress_panel(
    title: str, tasks: Sequence[Mapping[str, Any]], says: str, notes: Sequence[str] = (), news: Sequence[str] = ()
) -> Any:
    """Show the tasks of a lab as a table, a line of boxes as wide as their points, and ``says``, what to do next.

    A task is ``{"title", "state", "mark", "words", "points", "of", "hints"}``: ``state`` is ``passes``, ``again``,
    ``tried`` or ``none``, ``mark`` its sign, ``words`` what it means here, ``points`` those earned ``of`` so many.
    ``news`` are lines about a newer release, the first of them their heading.
    Reference: Nicol, Macfarlane-Dick, "Formative assessment and self-regulated learning", 2006.

    Example:
        >>> task = {"title": "Transpose", "state": "none", "mark": "○", "words": "not started", "points": 0, "of": 4}
        >>> progress_panel("Lab 01", [task | {"hints": ""}], "Next: Transpose.")
        <Progress>
    """
    return KIND.show(lab=title, tasks=list(tasks), says=says, notes=list(notes), news=list(news))


def _static(state: State) -> str:
    rows = []
    for number, task in enumerate(state["tasks"], start=1):
        name, result = f"{number} · {task['title']}", f"{task['mark']} {task['words']}"
        rows.append([name, result, f"{task['points']:g} of {task['of']:g}", task["hints"]])
    lines = [state["says"], *state["notes"], *state["news"]]
    return table(state["lab"], HEAD, rows) + "".join(map(paragraph, lines))


KIND = Kind("progress_panel", "Progress", _static)
