"""Division of a submission's cells: which process runs which cell, and whether its text is the lab's or the student's.

The student's process runs the student's solutions, the student's own cells, and the locked cells. The examiner runs the
locked cells and the tests, and of the solutions it gets only the names that the reference solution binds. Tests never
enter the student's process, and only solutions and own cells are taken from a submission, whatever its metadata.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from IPython.core.inputtransformer2 import TransformerManager

NotebookCell = Mapping[str, Any]
Kind = Literal["locked", "solution", "test"]
HUNG_TWICE = 2  # once as a whole, and once reduced to what it defines: then a cell is left out of every replay
_WRAPPER = re.compile(r"\s*%%(?:capture|time)\b.*(?:\n|\Z)")


@dataclass(frozen=True)
class StudentCell:
    """A cell for the student's process; it runs before the examiner's cell at ``position`` and after those before.

    ``index`` is its place in the submission, -1 for a locked cell that comes from the source.
    """

    position: int
    name: str
    source: str
    index: int


@dataclass(frozen=True)
class ExaminerCell:
    """A cell of the source for the examiner.

    Attributes:
        answer: the submission's text of a solution cell.
        claim: True if the test is tagged ``claim``: its points rest on reports of the student's process about itself.
    """

    position: int
    kind: Kind
    name: str
    source: str
    points: float = 0.0
    answer: str = ""
    claim: bool = False


@dataclass(frozen=True)
class SubmissionPlan:
    """The cells of both processes, in order, and irregularities of the submission."""

    student: tuple[StudentCell, ...]
    examiner: tuple[ExaminerCell, ...]
    oddities: tuple[str, ...] = ()

    def to_plain(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return asdict(self)

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> SubmissionPlan:
        """Read what ``to_plain`` wrote."""
        return cls(
            tuple(StudentCell(**each) for each in plain["student"]),
            tuple(ExaminerCell(**each) for each in plain["examiner"]),
            tuple(plain["oddities"]),
        )


def make_plan(source: Sequence[NotebookCell], submission: Sequence[NotebookCell]) -> SubmissionPlan:
    """Plan one submission.

    Args:
        source: cells of the instructor's notebook, with solutions and hidden tests, as nbformat has them.
        submission: cells of the submission. Names are taken from nbgrader's metadata; of two cells with one name the
            last counts, as nbgrader has it. Cells without a name of the source's are the student's own.

    Example:
        >>> def cell(source, **nbgrader):
        ...     return {"cell_type": "code", "source": source, "metadata": {"nbgrader": nbgrader}}
        >>> solution, test = {"grade_id": "f", "solution": True}, {"grade_id": "f_test", "grade": True, "points": 2}
        >>> plan = make_plan([cell("f = 1", **solution), cell("assert f", **test)], [cell("f = 2", **solution)])
        >>> [each.source for each in plan.student], [each.kind for each in plan.examiner]
        (['f = 2'], ['solution', 'test'])
    """
    known = {_name(cell): _kind(cell) for cell in source if _name(cell)}
    code = {_name(cell) for cell in source if cell.get("cell_type") == "code"}
    answers: dict[str, tuple[int, str]] = {}
    own: dict[str, list[tuple[int, str]]] = {}
    oddities: list[str] = []
    before: dict[str, str] = {}
    after = ""
    for index, cell in enumerate(submission):
        name, is_code = _name(cell), cell.get("cell_type") == "code"
        if name in known:
            if name in answers:
                oddities.append(f"two cells are named {name}; the last one counts")
                # It runs at its own place, and the later cell replaces its definitions.
                own.setdefault(before[name], []).append(answers[name])
            before[name], after = after, name
            if name in code and known[name] == "solution" and not is_code:
                oddities.append(f"the answer {name} is no code cell")
            answers[name] = (index, _text(cell) if is_code else "")
        elif is_code:
            own.setdefault(after, []).append((index, _text(cell)))
    oddities += [f"the cell {name} is missing" for name, kind in known.items() if name not in answers and kind]
    own = {name: sorted(cells) for name, cells in own.items()}
    student = [StudentCell(0, f"cell {index}", text, index) for index, text in own.get("", [])]
    examiner = []
    for position, cell in enumerate(source, 1):
        name, kind = _name(cell), _kind(cell)
        if cell.get("cell_type") != "code" or not kind:
            continue
        index, text = answers.get(name, (-1, ""))
        if kind == "solution":
            student.append(StudentCell(position, name, text, index))
            examiner.append(ExaminerCell(position, kind, name, _text(cell), answer=text))
        elif kind == "locked":
            student.append(StudentCell(position, name, _text(cell), -1))
            examiner.append(ExaminerCell(position, kind, name, _text(cell)))
        else:
            points = float(_nbgrader(cell).get("points", 0))
            examiner.append(ExaminerCell(position, kind, name, _text(cell), points, claim="claim" in _tags(cell)))
        student += [StudentCell(position, f"cell {at}", text, at) for at, text in own.get(name, [])]
    return SubmissionPlan(tuple(student), tuple(examiner), tuple(oddities))


def _nbgrader(cell: NotebookCell) -> Mapping[str, Any]:
    found = (cell.get("metadata") or {}).get("nbgrader")
    return found if isinstance(found, Mapping) else {}


def _tags(cell: NotebookCell) -> Sequence[str]:
    return (cell.get("metadata") or {}).get("tags") or ()


def _name(cell: NotebookCell) -> str:
    name = _nbgrader(cell).get("grade_id", "")
    if not name and "parameters" in _tags(cell):
        return "parameters"
    return name if isinstance(name, str) else ""


def _kind(cell: NotebookCell) -> Kind | None:
    found = _nbgrader(cell)
    if found.get("solution"):
        return "solution"
    if found.get("grade"):
        return "test"
    return "locked" if found.get("locked") or _name(cell) == "parameters" else None


def _text(cell: NotebookCell) -> str:
    source = cell.get("source", "")
    return source if isinstance(source, str) else "".join(source)


def bound_names(source: str) -> dict[str, ast.AST]:
    """Return the names that a cell binds at its top level, each with the statement that binds it.

    Example:
        >>> sorted(bound_names("%matplotlib inline\\nimport numpy as np\\ndef f(): pass\\na, (b, c) = 1, (2, 3)"))
        ['a', 'b', 'c', 'f', 'np']
    """
    try:
        tree, _ = parsed(source)
    except SyntaxError:
        return {}
    return dict(bindings(tree.body))


def parsed(source: str) -> tuple[ast.Module, str]:
    """Return the syntax tree of a cell, and the Python text that it is the tree of.

    Parses as Python first: removing IPython's own syntax takes ten times as long as parsing.
    """
    try:
        return ast.parse(source), source
    except SyntaxError:
        inner = unwrapped(source)
        lines = source[: len(source) - len(inner)].count("\n")
        text = TransformerManager().transform_cell("#\n" * lines + inner)
        return ast.parse(text), text


def unwrapped(source: str) -> str:
    """Return a cell without the lines ``%%capture`` and ``%%time`` above it: what it binds is the same.

    Example:
        >>> unwrapped("%%capture\\n%%time\\nx = 1"), unwrapped("%%bash\\nls")
        ('x = 1', '%%bash\\nls')
    """
    while found := _WRAPPER.match(source):
        source = source[found.end() :]
    return source


def bindings(body: Iterable[ast.stmt]) -> Iterable[tuple[str, ast.AST]]:
    """Yield the names that statements bind, each with its statement, in order; a name can come more than once."""
    for statement in body:
        match statement:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name, statement
            case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                yield from ((alias.asname or alias.name.partition(".")[0], statement) for alias in aliases)
            case ast.Assign() | ast.AnnAssign() | ast.AugAssign():
                targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
                stored = (node for target in targets for node in ast.walk(target) if isinstance(node, ast.Name))
                yield from ((node.id, statement) for node in stored if isinstance(node.ctx, ast.Store))
            case ast.If() | ast.For() | ast.While() | ast.With() | ast.Try():
                parts = (getattr(statement, part, []) for part in ("body", "orelse", "finalbody"))
                yield from (pair for part in parts for pair in bindings(part))
