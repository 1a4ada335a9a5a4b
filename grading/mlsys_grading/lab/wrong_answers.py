"""Wrong answers: what a tempting misconception changes in a solution cell.

``wrong_answers.py`` holds one cell for each, with a header that names the task, the answer and the misconception. The
cell is either a whole solution cell, or edits of the task's. A line of an edit starts with ``#-`` (cut from the
solution), ``#+`` (put in) or ``# `` (kept, for a line that is not unique); a blank line starts another edit::

    # %% wrong={"grade_id": "pool", "name": "last_in_first_out", "misconception": "any free block will do", "keeps": 0}
    #-        self._idle = collections.deque(range(size))
    #+        self._idle = list(range(size))[::-1]

    #-        block = self._idle.popleft()
    #+        block = self._idle.pop()

A check that students see must catch a wrong answer, unless its header has a key ``"unseen"`` with the reason.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from mlsys_grading.lab.cells import Cell, read_cells
from mlsys_labkit.errors import LabkitError

_HEADER = '# %% wrong={"grade_id": "offset", "name": "bytes", "misconception": "strides count bytes", "keeps": 0}'
_CUT, _PUT, _KEPT = "#-", "#+", "# "

Line = tuple[int, str]  # the line's number in the file, and its text


@dataclass(frozen=True)
class WrongAnswer:
    """A tempting replacement for a task's solution cell. It may keep at most ``keeps`` of the task's points.

    ``unseen`` is the reason why no check that students see catches it, or empty if one does.
    """

    task: str
    name: str
    misconception: str
    keeps: float
    source: str  # the whole cell, with edits applied
    line: int
    unseen: str = ""
    written: tuple[Line, ...] = ()  # the lines of ``source`` that the file itself holds


def read_wrong_answers(path: Path, solutions: Mapping[str, str]) -> tuple[WrongAnswer, ...]:
    """Read the wrong answers of a lab; none if there is no file. ``solutions``: grade id -> source of the cell.

    Raises LabkitError with file, line and name for a header without a key, and for an edit that does not fit.
    """
    if not path.exists():
        return ()
    _, cells = read_cells(path)
    return tuple(
        _wrong_answer(path, cell, solutions)
        for cell in cells
        if cell.kind == "code" and ("wrong" in cell.metadata or _is_program(cell))
    )


def _wrong_answer(path: Path, cell: Cell, solutions: Mapping[str, str]) -> WrongAnswer:
    header = cell.metadata.get("wrong")
    if not isinstance(header, Mapping):
        raise LabkitError(f"{path}:{cell.line}: a wrong answer needs a header such as  {_HEADER}")
    missing = [key for key in ("grade_id", "name", "misconception", "keeps") if header.get(key) in (None, "")]
    if missing or not isinstance(header["keeps"], int | float):
        problem = f"lacks {', '.join(missing)}" if missing else f"keeps {header['keeps']!r}, which is no number"
        raise LabkitError(f"{path}:{cell.line}: the wrong answer's header {problem}; write  {_HEADER}")
    task, name, misconception = (str(header[key]) for key in ("grade_id", "name", "misconception"))
    lines = list(enumerate(cell.source.split("\n"), start=cell.line))
    solution = solutions.get(task, "")
    try:
        if any(text.startswith((_CUT, _PUT)) for _, text in lines):
            source = _edited(solution, lines) if solution else ""  # without a solution the build names the task
            written = tuple((number, text[2:]) for number, text in lines if text.startswith(_PUT))
        else:
            source, written = cell.source, tuple(lines)
        if source and source == solution:
            raise _MisfitError(cell.line, "it is the solution; change something")
    except _MisfitError as misfit:
        line, problem = misfit.args
        raise LabkitError(f"{path}:{line}: {task} / {name}: {problem}") from None
    unseen = str(header.get("unseen", ""))
    return WrongAnswer(task, name, misconception, float(header["keeps"]), source, cell.line, unseen, written)


class _MisfitError(Exception):
    """An edit that cannot be applied: its line in the file, and the problem."""


def _edited(solution: str, lines: Sequence[Line]) -> str:
    """Return the solution with all edits applied, each found in the solution as it was."""
    text = solution.split("\n")
    places = []
    for is_edit, group in groupby(lines, key=lambda line: bool(line[1].strip())):
        if is_edit:
            places.append(_place(text, list(group)))
    end = len(text)
    for start, length, new, line in sorted(places, reverse=True):
        if start + length > end:
            raise _MisfitError(line, "two edits overlap; make one of them")
        text[start : start + length] = new
        end = start
    return "\n".join(text)


def _place(solution: Sequence[str], edit: Sequence[Line]) -> tuple[int, int, list[str], int]:
    """Return where an edit starts in the solution, how many lines it replaces, with which, and its line in the file."""
    for number, text in edit:
        if text != "#" and not text.startswith((_CUT, _PUT, _KEPT)):
            raise _MisfitError(number, f"an edit's line starts with '#-', '#+' or '# ', not with {text[:8]!r}")
    line = edit[0][0]
    old = [text[2:] for _, text in edit if not text.startswith(_PUT)]
    new = [text[2:] for _, text in edit if not text.startswith(_CUT)]
    if not old:
        raise _MisfitError(line, "the edit has no line of the solution; keep the one beside it with '# '")
    starts = [at for at in range(len(solution) - len(old) + 1) if solution[at : at + len(old)] == old]
    if len(starts) != 1:
        raise _MisfitError(
            line,
            f"the solution has the edit's old lines {len(starts)} times ({old[0].strip()[:60]!r} is the first); "
            + ("keep a line beside them with '# '" if starts else "copy them from the solution, indentation included"),
        )
    return starts[0], len(old), new, line


def _is_program(cell: Cell) -> bool:
    """Return False for a cell of comments, imports and docstrings alone: an explanation at the head of the file."""
    try:
        body = ast.parse(cell.source).body
    except SyntaxError:
        return True
    return any(
        not isinstance(node, ast.Import | ast.ImportFrom)
        and not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
        for node in body
    )
