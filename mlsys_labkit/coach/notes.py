"""The notes of every task: ``notes/labNN_topic.toml``, one table per task, read once.

They travel with the package, not with the notebook, so that a lab opened alone on Colab has them too.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

from mlsys_labkit.errors import LabkitError


@dataclass(frozen=True)
class Note:
    """The notes of one task. ``question`` and ``hints`` may each be missing, never both."""

    task: str
    lab: str
    question: str = ""
    options: tuple[str, ...] = ()
    answer: int = 0
    because: str = ""
    hints: tuple[str, ...] = ()


def note(task: str) -> Note:
    """Return the note of ``task``. Raises LabkitError that names the nearest tasks if there is none."""
    notes = all_notes()
    if task not in notes:
        near = difflib.get_close_matches(task, notes, n=3) or sorted(notes)[:5]
        raise LabkitError(f"there is no task called {task!r}; the nearest names are: {', '.join(near)}")
    return notes[task]


@cache
def all_notes() -> Mapping[str, Note]:
    """Return every note by task name."""
    found: dict[str, Note] = {}
    for file in sorted((files("mlsys_labkit.coach") / "notes").iterdir(), key=lambda entry: entry.name):
        if not file.name.endswith(".toml"):
            continue
        for one in read_notes(file):
            if one.task in found:
                raise LabkitError(
                    f"{file.name}: task {one.task!r} stands in {found[one.task].lab} too; rename one of them"
                )
            found[one.task] = one
    return found


def read_notes(file: Traversable) -> list[Note]:
    """Read the notes in one file. Raises LabkitError with the file, the task and what to write instead."""
    try:
        tables = tomllib.loads(file.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise LabkitError(f"{file.name}: not valid TOML: {error}") from None
    return [_note(file.name, task, table) for task, table in tables.items()]


def _note(file: str, task: str, table: dict[str, Any]) -> Note:
    def refuse(problem: str) -> LabkitError:
        return LabkitError(f"{file}: [{task}] {problem}")

    unknown = set(table) - {"question", "options", "answer", "because", "hints"}
    if unknown:
        raise refuse(f"has unknown keys {sorted(unknown)}; known are question, options, answer, because, hints")
    if "question" not in table and "hints" not in table:
        raise refuse("has neither a question nor hints; write one of them")
    if len(table.get("hints", ())) > 3:
        raise refuse(f"has {len(table['hints'])} hints; three rungs are the most a ladder holds")
    if "question" in table:
        missing = {"options", "answer", "because"} - set(table)
        if missing:
            raise refuse(f"asks a question but lacks {sorted(missing)}")
        if not 2 <= len(table["options"]) <= 6:
            raise refuse(f"offers {len(table['options'])} options; write 2 to 6")
        if not 0 <= table["answer"] < len(table["options"]):
            last = len(table["options"]) - 1
            raise refuse(f"answer = {table['answer']}, but its options are numbered 0 to {last}")
    return Note(
        task=task,
        lab=file.removesuffix(".toml"),
        question=table.get("question", "").strip(),
        options=tuple(table.get("options", ())),
        answer=table.get("answer", 0),
        because=table.get("because", "").strip(),
        hints=tuple(rung.strip() for rung in table.get("hints", ())),
    )
