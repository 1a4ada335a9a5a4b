"""A lab as its author wrote it: cells, tasks and wrong answers, each with the line it stands on.

The one source of a lab is ``solutions/labNN_topic/labNN_topic.py`` in jupytext's percent format, with
``wrong_answers.py`` beside it. Everything else (notebooks, proofs, reports) is made from what is read here.
Reference: https://jupytext.readthedocs.io/en/latest/formats-scripts.html#the-percent-format
"""

from __future__ import annotations

import ast
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from mlsys_labkit.errors import LabkitError

_NAME = re.compile(r"lab\d\d_[a-z0-9_]+")
_MARKER = re.compile(r"^\s*#\s*%%%*(\s|$)")  # what jupytext takes for the start of a cell


@dataclass(frozen=True)
class Cell:
    """One cell. ``line`` is where its source starts in the author's file, counted from 1."""

    index: int
    kind: str  # "code" | "markdown" | "raw"
    source: str
    line: int
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def nbgrader(self) -> Mapping[str, Any]:
        """nbgrader's own metadata; empty for a cell that nbgrader does not know."""
        return self.metadata.get("nbgrader") or {}

    @property
    def grade_id(self) -> str:
        return str(self.nbgrader.get("grade_id", ""))

    @property
    def is_solution(self) -> bool:
        return bool(self.nbgrader.get("solution"))

    @property
    def is_test(self) -> bool:
        """Graded by running it."""
        return bool(self.nbgrader.get("grade")) and not self.is_solution

    @property
    def is_locked(self) -> bool:
        """Neither a solution nor a test, yet not the student's to change: record types and helpers."""
        return bool(self.nbgrader.get("locked")) and not self.is_solution and not self.is_test

    @property
    def points(self) -> float:
        return float(self.nbgrader.get("points", 0)) if self.is_test else 0.0

    @property
    def tags(self) -> Sequence[str]:
        return self.metadata.get("tags") or ()


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
class WrongAnswer:
    """A tempting replacement for a task's solution cell. It may keep at most ``keeps`` of the task's points."""

    task: str
    name: str
    misconception: str
    keeps: float
    source: str
    line: int


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
        """In the order of the notebook."""
        starts = [cell.index for cell in self.cells if cell.is_solution]
        ends = [*starts[1:], len(self.cells)]
        return tuple(
            Task(
                self.cells[start].grade_id,
                self.cells[start],
                tuple(c for c in self.cells[start + 1 : end] if c.is_test),
                end - 1,
            )
            for start, end in zip(starts, ends, strict=False)
        )

    def wrong_for(self, task: str) -> tuple[WrongAnswer, ...]:
        return tuple(wrong for wrong in self.wrong_answers if wrong.task == task)

    def data_files(self) -> list[Path]:
        """What travels with the notebook: everything under ``data/``, in a fixed order."""
        data = self.folder / "data"
        return sorted(p for p in data.rglob("*") if p.is_file() and not _is_scrap(p.relative_to(data)))

    def copy_data(self, folder: Path) -> None:
        """Put the data beside a notebook in ``folder``."""
        for file in self.data_files():
            target = folder / file.relative_to(self.folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target)

    def where(self, path: Path, line: int = 0) -> str:
        """``path:line`` relative to the checkout, as editors and CI logs make clickable."""
        shown = path.relative_to(self.root) if path.is_relative_to(self.root) else path
        return f"{shown}:{line}" if line else str(shown)


def find_root(start: Path | None = None) -> Path:
    """The checkout around ``start`` (default: here): the nearest folder with pyproject.toml and solutions/."""
    start = (start or Path.cwd()).resolve()
    for folder in (start, *start.parents):
        if (folder / "pyproject.toml").is_file() and (folder / "solutions").is_dir():
            return folder
    raise LabkitError(
        f"no checkout with pyproject.toml and solutions/ at {start} or above; cd into one, or name it with --root"
    )


def lab_names(root: Path) -> list[str]:
    """Names of all labs of a checkout, sorted."""
    return sorted(
        folder.name for folder in (root / "solutions").iterdir() if folder.is_dir() and _NAME.fullmatch(folder.name)
    )


def choose(root: Path, wanted: Iterable[str] = ()) -> list[str]:
    """The labs meant by ``wanted`` (full names, unique beginnings such as ``lab01``, or paths); all if empty.

    Raises LabkitError with the known names for one that fits none or several.

    Example:
        >>> choose(find_root(), ["lab01"])  # doctest: +SKIP
        ['lab01_linear_algebra']
    """
    known = lab_names(root)
    if not known:
        raise LabkitError(f"no labs in {root / 'solutions'}; a lab is a folder such as lab01_linear_algebra")
    chosen = []
    for name in wanted:
        stem = Path(name).stem
        found = [stem] if stem in known else [lab for lab in known if stem and lab.startswith(stem)]
        if len(found) != 1:
            problem = f"{name!r} could be {', '.join(found)}" if found else f"there is no lab {name!r}"
            raise LabkitError(f"{problem}; the labs are: {', '.join(known)}")
        chosen += found
    return sorted(set(chosen)) or known


def read_labs(root: Path, wanted: Iterable[str] = ()) -> list[Lab]:
    """Read the labs that :func:`choose` finds."""
    return [read_lab(root, name) for name in choose(root, wanted)]


def read_lab(root: Path, name: str) -> Lab:
    """Read one lab by its full name. Raises LabkitError with file and line for a source that cannot be read."""
    folder = root / "solutions" / name
    path = folder / f"{name}.py"
    notebook, cells = _read_percent(path)
    if not cells:
        raise LabkitError(f"{path}: there is no cell; start one with  # %%")
    wrong = _read_wrong_answers(folder / "wrong_answers.py")
    return Lab(root, name, cells, wrong, notebook.metadata)


def _read_percent(path: Path) -> tuple[Any, tuple[Cell, ...]]:
    """Parse with jupytext, and find the line of each cell, which jupytext does not keep."""
    import jupytext

    text = _read_text(path)
    try:
        notebook = jupytext.reads(text, fmt="py:percent")
    except Exception as error:  # jupytext lets its parsers' own errors through, of many types
        raise LabkitError(f"{path}: not a percent-format notebook ({_one_line(error)}); mend its header") from None
    starts = _cell_lines(text)
    if len(starts) != len(notebook.cells):
        raise LabkitError(
            f"{path}: {len(starts)} cell markers '# %%' but {len(notebook.cells)} cells; "
            "put nothing before the first marker and no line starting with '# %%' inside a Markdown fence"
        )
    cells = []
    for index, (node, line) in enumerate(zip(notebook.cells, starts, strict=True)):
        metadata = {key: value for key, value in node.metadata.items() if key != "lines_to_next_cell"}
        cells.append(Cell(index, node.cell_type, node.source, line, metadata))
    return notebook, tuple(cells)


def _cell_lines(text: str) -> list[int]:
    """Line numbers of the first source line of each cell: the line after each marker outside a string."""
    from jupytext.stringparser import StringParser

    starts = []
    parser = StringParser("python")
    for number, line in enumerate(text.splitlines(), start=1):
        if not parser.is_quoted() and _MARKER.match(line):
            starts.append(number + 1)
            parser = StringParser("python")
        parser.read_line(line)
    return starts


def _read_wrong_answers(path: Path) -> tuple[WrongAnswer, ...]:
    if not path.exists():
        return ()
    _, cells = _read_percent(path)
    return tuple(
        _wrong_answer(path, cell) for cell in cells if cell.kind == "code" and ("wrong" in cell.metadata or _code(cell))
    )


def _wrong_answer(path: Path, cell: Cell) -> WrongAnswer:
    wrong = cell.metadata.get("wrong")
    example = '# %% wrong={"grade_id": "offset", "name": "bytes", "misconception": "strides count bytes", "keeps": 0}'
    if not isinstance(wrong, Mapping):
        raise LabkitError(f"{path}:{cell.line}: a wrong answer needs a header such as  {example}")
    missing = [key for key in ("grade_id", "name", "misconception", "keeps") if wrong.get(key) in (None, "")]
    if missing or not isinstance(wrong["keeps"], int | float):
        what = f"lacks {', '.join(missing)}" if missing else f"keeps {wrong['keeps']!r}, which is no number"
        raise LabkitError(f"{path}:{cell.line}: the wrong answer's header {what}; write  {example}")
    return WrongAnswer(
        str(wrong["grade_id"]),
        str(wrong["name"]),
        str(wrong["misconception"]),
        float(wrong["keeps"]),
        cell.source,
        cell.line,
    )


def _code(cell: Cell) -> bool:
    """False for a cell of comments, imports and docstrings: an explanation at the head of the file."""
    try:
        body = ast.parse(cell.source).body
    except SyntaxError:
        return True
    return any(
        not isinstance(node, ast.Import | ast.ImportFrom)
        and not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
        for node in body
    )


def _read_text(path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise LabkitError(f"{path} is missing; a lab's source has the name of its folder") from None
    except UnicodeDecodeError as error:
        raise LabkitError(f"{path}: not UTF-8 at byte {error.start}; save it as UTF-8") from None
    if "\0" in text:
        raise LabkitError(
            f"{path}:{text[: text.index(chr(0))].count(chr(10)) + 1}: a NUL byte, which no source has; cut it"
        )
    return text


def _is_scrap(path: Path) -> bool:
    return any(part.startswith(".") or part == "__pycache__" for part in path.parts)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
