"""The cells of a file in percent format, each with the line where its source starts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mlsys_labkit.errors import LabkitError

_MARKER = re.compile(r"^\s*#\s*%%%*(\s|$)")  # the start of a cell, as jupytext reads it


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
        """nbgrader's metadata; empty for a cell without."""
        return self.metadata.get("nbgrader") or {}

    @property
    def grade_id(self) -> str:
        return str(self.nbgrader.get("grade_id", ""))

    @property
    def is_solution(self) -> bool:
        return bool(self.nbgrader.get("solution"))

    @property
    def is_test(self) -> bool:
        """True for a cell that is graded by running it."""
        return bool(self.nbgrader.get("grade")) and not self.is_solution

    @property
    def is_locked(self) -> bool:
        """True for record types and helpers: neither solution nor test, but students may not change them."""
        return bool(self.nbgrader.get("locked")) and not self.is_solution and not self.is_test

    @property
    def points(self) -> float:
        return float(self.nbgrader.get("points", 0)) if self.is_test else 0.0

    @property
    def tags(self) -> Sequence[str]:
        return self.metadata.get("tags") or ()


def read_cells(path: Path) -> tuple[Mapping[str, Any], tuple[Cell, ...]]:
    """Read a file with jupytext: the notebook's metadata, and its cells with their lines, which jupytext drops."""
    import jupytext

    text = _read_text(path)
    try:
        notebook = jupytext.reads(text, fmt="py:percent")
    except Exception as error:  # jupytext lets its parsers' own errors through, of many types
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise LabkitError(f"{path}: not a percent-format notebook ({reason}); mend its header") from None
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
    return notebook.metadata, tuple(cells)


def _cell_lines(text: str) -> list[int]:
    """Return the line after each cell marker that stands outside a string."""
    from jupytext.stringparser import StringParser

    starts = []
    parser = StringParser("python")
    for number, line in enumerate(text.splitlines(), start=1):
        if not parser.is_quoted() and _MARKER.match(line):
            starts.append(number + 1)
            parser = StringParser("python")
        parser.read_line(line)
    return starts


def _read_text(path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise LabkitError(f"{path} is missing; a lab's source has the name of its folder") from None
    except UnicodeDecodeError as error:
        raise LabkitError(f"{path}: not UTF-8 at byte {error.start}; save it as UTF-8") from None
    if "\0" in text:
        line = text[: text.index("\0")].count("\n") + 1
        raise LabkitError(f"{path}:{line}: a NUL byte, which no source has; cut it")
    return text
