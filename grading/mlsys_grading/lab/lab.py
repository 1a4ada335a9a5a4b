"""One lab: its cells, its tasks, its wrong answers and its files."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from mlsys_grading.lab.asked import since_heading
from mlsys_grading.lab.cells import Cell, read_cells
from mlsys_grading.lab.wrong_answers import WrongAnswer, read_wrong_answers
from mlsys_labkit.errors import LabkitError


@dataclass(frozen=True)
class Task:
    """One solution cell and the graded test cells that follow it, up to the next solution cell."""

    name: str
    solution: Cell
    tests: tuple[Cell, ...]
    last: int  # index of the last cell before the next task's solution

    @property
    def points(self) -> float:
        return sum(test.points for test in self.tests)


@dataclass(frozen=True)
class Lab:
    """One lab as read from ``root/solutions/name``."""

    root: Path
    name: str
    cells: tuple[Cell, ...]
    wrong_answers: tuple[WrongAnswer, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        return self.root / "solutions" / self.name

    @property
    def path(self) -> Path:
        return self.folder / f"{self.name}.py"

    @property
    def wrong_path(self) -> Path:
        return self.folder / "wrong_answers.py"

    @property
    def notes_path(self) -> Path:
        return self.root / "mlsys_labkit" / "coach" / "notes" / f"{self.name}.toml"

    @property
    def points(self) -> float:
        return sum(cell.points for cell in self.cells)

    @cached_property
    def tasks(self) -> tuple[Task, ...]:
        """The tasks in the order of the notebook."""
        starts = [cell.index for cell in self.cells if cell.is_solution]
        tasks = []
        for start, end in zip(starts, [*starts[1:], len(self.cells)], strict=False):
            tests = tuple(cell for cell in self.cells[start + 1 : end] if cell.is_test)
            tasks.append(Task(self.cells[start].grade_id, self.cells[start], tests, end - 1))
        return tuple(tasks)

    def asked(self, task: Task) -> tuple[str, str]:
        """Return the heading of a task, and the Markdown between it, or the task before, and its answer."""
        heading, texts = "", list[str]()
        for cell in self.cells[: task.solution.index]:
            if cell.is_test or cell.is_solution:
                texts = []
            elif cell.kind == "markdown":
                found, text = since_heading(cell.source)
                heading, texts = (found, [text]) if found else (heading, [*texts, text])
        return heading, "\n\n".join(filter(None, texts))

    def wrong_for(self, task: str) -> tuple[WrongAnswer, ...]:
        return tuple(wrong for wrong in self.wrong_answers if wrong.task == task)

    def data_files(self) -> list[Path]:
        """Return every file under ``data/``, sorted: the files that students get beside the notebook."""
        data = self.folder / "data"
        return sorted(p for p in data.rglob("*") if p.is_file() and not _is_scrap(p.relative_to(data)))

    def copy_data(self, folder: Path) -> None:
        """Copy the data beside a notebook in ``folder``."""
        for file in self.data_files():
            target = folder / file.relative_to(self.folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target)

    def where(self, path: Path, line: int = 0) -> str:
        """Return ``path:line`` relative to the checkout, which editors and CI logs make clickable."""
        shown = path.relative_to(self.root) if path.is_relative_to(self.root) else path
        return f"{shown}:{line}" if line else str(shown)


def read_lab(root: Path, name: str) -> Lab:
    """Read one lab by its full name. Raises LabkitError with file and line for a source that cannot be read."""
    folder = root / "solutions" / name
    path = folder / f"{name}.py"
    metadata, cells = read_cells(path)
    if not cells:
        raise LabkitError(f"{path}: there is no cell; start one with  # %%")
    solutions = {cell.grade_id: cell.source for cell in cells if cell.is_solution}
    wrong = read_wrong_answers(folder / "wrong_answers.py", solutions)
    return Lab(root, name, cells, wrong, metadata)


def _is_scrap(path: Path) -> bool:
    return any(part.startswith(".") or part == "__pycache__" for part in path.parts)
