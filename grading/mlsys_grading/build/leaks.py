"""The search for solutions and hidden tests in a student's notebook and in the hints.

Comments and white space aside, a text gives a solution away if it holds one of its long lines, long expressions, or two
of its lines in a row; and hidden tests, if it holds three of their lines in a row. Short commonplaces never count.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from mlsys_grading.build import markers
from mlsys_grading.build.cpp import is_cpp
from mlsys_grading.build.finding import BuildFinding, at, in_file
from mlsys_grading.build.python import to_python
from mlsys_grading.lab import Cell, Lab, Task

_LINE = 40  # characters without white space from which a single line reveals the solution
_PART = 12  # characters from which a line counts at all
_PAIR = 30  # two lines in a row
_EXPRESSION = 24  # an expression with two operations or more; in a one-statement solution two thirds of it
_LONG_EXPRESSION = 36  # an expression with one
_HIDDEN_RUN = 3
_INDEX = re.compile(r"(int|unsigned|auto|const|size_t|\w+=)*(blockIdx|blockDim|threadIdx|gridDim|[.xyz*+();])+")
_OPERATIONS = (ast.BinOp, ast.Call, ast.Subscript, ast.Compare, ast.comprehension)


def check_leaks(lab: Lab) -> Iterator[BuildFinding]:
    """Find every place where a solution or a hidden test can be read."""
    cells = [(cell, _squeeze_cell(visible(cell))) for cell in lab.cells]
    notes = _squeeze(lab.notes_path.read_text(encoding="utf-8")) if lab.notes_path.is_file() else ""
    for task in lab.tasks:
        prints = _fingerprints(task)
        for cell, text in cells:
            if shown := _first(prints, text):
                problem = f"part of the solution of {task.name} can be read here: {shown}"
                line = _line_of(visible(cell), shown)
                yield at(lab, cell, line, "leak", problem, "leave it out, or say it in other words")
        if shown := _first(prints, notes):
            problem = f"part of the solution of {task.name} stands in the coach's notes: {shown}"
            yield in_file(lab, lab.notes_path, 0, "leak", problem, "hint without saying it")
        for test in task.tests:
            runs = _hidden_runs(test)
            for cell, text in cells:
                if not cell.is_test and (shown := _first(runs, text)):
                    problem = f"hidden tests of {test.grade_id} can be read here: {shown}"
                    yield at(lab, cell, 0, "leak", problem, "leave them out")


def _fingerprints(task: Task) -> list[str]:
    """Return the parts of the solution, without white space, that reveal it."""
    source = task.solution.source
    cut = [text for _, text in markers.cut_text(source, markers.SOLUTION)]
    lines = [
        line
        for line in map(_squeeze, _without_comments(cut, is_cpp(source)))
        if len(line) >= _PART and not line.startswith(("import", "from")) and not _is_commonplace(line)
    ]
    telling = [line for line in lines if len(line) >= _LINE]
    telling += [a + b for a, b in pairwise(lines) if len(a) + len(b) >= _PAIR]
    return telling + _telling_expressions(source)


def _telling_expressions(source: str) -> list[str]:
    """Return the long expressions that the solution assigns or returns."""
    found = list(_cpp_expressions(source) if is_cpp(source) else _python_expressions(source))
    least = _EXPRESSION if len(found) > 1 else _EXPRESSION * 2 // 3
    return [text for text, n in found if n and len(text) >= (least if n > 1 else _LONG_EXPRESSION)]


def _python_expressions(source: str) -> Iterator[tuple[str, int]]:
    """Yield what each statement of the solution assigns or returns, and its operations; "", 0 for nothing."""
    regions = [r for r in markers.regions(source)[0] if r.what == markers.SOLUTION]
    try:
        tree = ast.parse(to_python(source))
    except SyntaxError:
        return
    for node in (node for node in ast.walk(tree) if isinstance(node, ast.stmt)):
        if any(region.first <= node.lineno <= region.last for region in regions):
            value = getattr(node, "value", None)
            if isinstance(node, ast.Return | ast.Assign | ast.AugAssign | ast.AnnAssign) and value is not None:
                text = _squeeze(ast.get_source_segment(to_python(source), value) or "")
                yield text, sum(isinstance(part, _OPERATIONS) for part in ast.walk(value))
            else:
                yield "", 0


def _cpp_expressions(source: str) -> Iterator[tuple[str, int]]:
    """Yield the same for a kernel; statements are cut at semicolons, and a thread's place in the grid is nothing."""
    cut = [text for _, text in markers.cut_text(source, markers.SOLUTION)]
    statements = [_squeeze(one) for one in re.split(r"[;{}]", "\n".join(_without_comments(cut, cpp=True)))]
    for statement in filter(None, statements):
        found = re.search(r"(?:(?<![=!<>])=(?!=)|^return)(.*)", statement)
        text = found[1] if found and not _is_commonplace(found[1]) else ""
        yield text, len(re.findall(r"[-+*/%&|<>^([]", text))


def _is_commonplace(line: str) -> bool:
    """Return whether a line computes a thread's place in the grid, as every kernel does."""
    return _INDEX.fullmatch(line) is not None


def _hidden_runs(test: Cell) -> list[str]:
    cut = [text for _, text in markers.cut_text(test.source, markers.HIDDEN)]
    lines = [line for line in map(_squeeze, _without_comments(cut)) if len(line) >= _PART]
    width = min(_HIDDEN_RUN, len(lines))
    runs = ["".join(lines[i : i + width]) for i in range(len(lines) - width + 1)] if lines else []
    return [run for run in runs if len(run) >= _PAIR]


def visible(cell: Cell) -> str:
    """Return the cell as students see it, with blank lines for cut regions, so that line numbers stay."""
    if cell.is_solution and not markers.regions(cell.source)[0]:
        return ""
    return markers.without(cell.source, markers.SOLUTION, markers.HIDDEN)


def _squeeze_cell(source: str) -> str:
    lines = map(_squeeze, _without_comments(source.split("\n"), is_cpp(source)))
    return "".join(line for line in lines if len(line) >= _PART) + "\0" + _squeeze(source)


def _without_comments(lines: Sequence[str], cpp: bool = False) -> list[str]:
    return [re.sub(r"//.*$" if cpp else r"(^|\s)#.*$", "", line) for line in lines]


def _squeeze(text: str) -> str:
    return re.sub(r"\s+", "", text)


def _first(prints: Sequence[str], text: str) -> str:
    return next((one for one in prints if one in text), "")


def _line_of(source: str, squeezed: str) -> int:
    """Return the line where the revealed text begins."""
    for number, line in enumerate(map(_squeeze, source.split("\n")), start=1):
        if len(line) >= _PART and (line in squeezed or squeezed in line):
            return number
    return 1
