"""Code cells of a lab's solution: read without jupytext, run one by one, and the kernels of its ``%%cuda`` cells."""

from __future__ import annotations

import ast
import io
import re
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.gpu.cases import ROOT, first_line

_HEAD = re.compile(r"^# %%(?P<rest>(?![a-z_]).*)$", re.MULTILINE)  # "# %%cuda name" begins no cell
_MAGIC = re.compile(r"^# (%%?[a-z_]\w*.*)$", re.MULTILINE)
_MARKER = re.compile(r"^([ \t]*)(#+ (?:BEGIN|END) )", re.MULTILINE)


@dataclass(frozen=True)
class LabCell:
    """One code cell. ``line`` is where it begins in the solution, ``grade_id`` is empty for a cell without marks."""

    line: int
    grade_id: str
    source: str


@dataclass(frozen=True)
class CellRun:
    """The end of one cell. ``error`` is empty when it passed; ``at`` are the innermost frames of the error."""

    cell: LabCell
    seconds: float
    output: str
    error: str = ""
    at: tuple[str, ...] = ()


def lab_path(lab: str) -> Path:
    """Return the solution of a lab by the first letters of its name, such as ``lab03``."""
    (folder,) = (ROOT / "solutions").glob(f"{lab}*")
    return folder / f"{folder.name}.py"


def read_cells(path: Path) -> list[LabCell]:
    """Return the code cells of a solution in jupytext's percent format, without those that install packages."""
    text = path.read_text(encoding="utf-8")
    heads = [*_HEAD.finditer(text)]
    found = []
    for head, after in zip(heads, [*heads[1:], None], strict=True):
        source = text[head.end() : after.start() if after else len(text)].strip("\n")
        if "[markdown]" in head["rest"] or 'tags=["install"]' in head["rest"] or not source.strip():
            continue
        name = re.search(r'"grade_id": "([^"]+)"', head["rest"])
        line = text.count("\n", 0, head.start()) + 1
        found.append(LabCell(line, name[1] if name else "", _MAGIC.sub(r"\1", source)))
    return found


def run_cells(path: Path) -> Iterator[CellRun]:
    """Run the cells of a solution in this process, and go on behind a cell that fails.

    The line of each cell goes to standard error first, so that a process that dies names its last cell.
    """
    space: dict[str, Any] = {"__name__": "__main__", "display": lambda *shown, **_: None}
    for cell in read_cells(path):
        print(f"{path.stem}, line {cell.line}", file=sys.stderr, flush=True)
        out, began, error, at = io.StringIO(), time.perf_counter(), "", ()
        try:
            with redirect_stdout(out):
                _run(cell.source, space)
        except Exception as raised:
            error = first_line(raised, 400)
            frames = traceback.extract_tb(raised.__traceback__)[-3:]
            at = tuple(f"{Path(each.filename).name}:{each.lineno} {each.name}" for each in reversed(frames))
        yield CellRun(cell, time.perf_counter() - began, out.getvalue(), error, at)


def lab_kernels(lab: str, backend: str = "gpu", only: str = "") -> dict[str, Any]:
    """Compile the ``%%cuda`` cells of a lab, or one of them; several kernels of one cell are called ``cell.kernel``."""
    from mlsys_labkit.cuda.kernel.cell import compile_cell
    from mlsys_labkit.cuda.kernel.compilation import Kernels

    made: dict[str, Any] = {}
    for line, source in cuda_cells(lab_path(lab)):
        if only and line.split()[0] != only:
            continue
        name, kernel = compile_cell(f"{line} --backend {backend}", source)
        if isinstance(kernel, Kernels):
            made.update({f"{name}.{each}": kernel[each] for each in kernel})
        else:
            made[name] = kernel
    return made


def cuda_cells(path: Path) -> list[tuple[str, str]]:
    """Return the options and the source of each ``%%cuda`` cell of a solution, with nbgrader's markers as comments."""
    parts = [cell.source.partition("\n") for cell in read_cells(path)]
    found = [(head.removeprefix("%%cuda").strip(), rest) for head, _, rest in parts if head.startswith("%%cuda ")]
    return [(options, _MARKER.sub(r"\1// \2", source)) for options, source in found]


def _run(source: str, space: dict[str, Any]) -> None:
    """Run one cell as a notebook would, with the one cell magic that the labs use."""
    first, _, rest = source.partition("\n")
    if first.startswith("%%cuda"):
        from mlsys_labkit.cuda.kernel.cell import compile_cell

        name, made = compile_cell(first.removeprefix("%%cuda").strip(), rest)
        space[name] = made
        return
    plain = "\n".join("" if line.startswith("%") else line for line in source.split("\n"))
    exec(compile(ast.parse(plain), "<cell>", "exec"), space)
