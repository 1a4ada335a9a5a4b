"""Widgets that the chapters and the labs show, each with its state.

    python -m tests.labkit.shown_widgets FILE

runs of each document only the cells that its widgets depend on, in a shell of IPython, and writes a list of
:class:`Shown` as JSON. Of a lab it runs the source with its solutions, without the cells of tests.
"""

from __future__ import annotations

import ast
import contextlib
import json
import linecache
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

from mlsys_labkit.widgets import base
from tests.conftest import ROOT

DOCUMENTS = sorted([*(ROOT / "course/chapters").glob("*.md"), *(ROOT / "solutions").glob("*/lab*.py")])
NOT_DRAWN = ("answer",)  # its text is not a picture


@dataclass(frozen=True)
class Shown:
    """One widget that a document shows: the call's place as ``cell:line``, the kind's folder, and the state."""

    document: str
    place: str
    folder: str
    state: Mapping[str, Any]


@dataclass
class Cell:
    """One code cell: the names that it needs from others, binds anew and changes, and the places of its calls."""

    number: int
    tree: ast.Module
    needs: set[str] = field(default_factory=set)
    binds: set[str] = field(default_factory=set)
    changes: set[str] = field(default_factory=set)
    calls: list[str] = field(default_factory=list)
    makers: set[str] = field(default_factory=set)  # functions and classes of it that show a widget when called
    draws: bool = False  # a picture of a lab, whose names later cells bind again

    def read(self, body: Iterable[ast.stmt]) -> None:
        """Note the names of statements in order."""
        for node in body:
            inner = [part for name in ("body", "orelse", "finalbody") for part in getattr(node, name, ())]
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                self.needs |= _names(node, ast.Load) - _names(node, ast.Store) - _arguments(node) - self.binds
                self.binds.add(node.name)
            elif inner:
                heads = [one for name, one in ast.iter_fields(node) if name not in ("body", "orelse", "finalbody")]
                head = ast.Module([one for part in heads for one in (part if isinstance(part, list) else [part])], [])
                self.needs |= _names(head, ast.Load) - _names(head, ast.Store) - self.binds - _inner(head)
                self.binds |= _names(head, ast.Store)
                self.read(inner)
            else:
                targets = [node.target] if isinstance(node, ast.AugAssign) else []
                used = _names(node, ast.Load) | {name for one in targets for name in _names(one, ast.Store)}
                self.needs |= used - self.binds - _inner(node)
                self.changes |= set(_changed(node))
                self.binds |= _names(node, ast.Store) | _imported(node)


@cache
def cells(path: Path) -> list[Cell]:
    """Return the code cells of a chapter or of a lab's source, without tests."""
    import jupytext
    from IPython.core.inputtransformer2 import TransformerManager

    notebook = jupytext.read(path, fmt="md:myst") if path.suffix == ".md" else jupytext.read(path)
    found = []
    for number, cell in enumerate(cell for cell in notebook.cells if cell.cell_type == "code"):
        if cell.metadata.get("nbgrader", {}).get("points"):
            continue
        source = TransformerManager().transform_cell(cell.source)
        name = file_of(path, number)
        linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)  # Triton reads a source
        one = Cell(number, ast.parse(source))
        one.read(one.tree.body)
        if cell.source.startswith("%%"):  # %%cuda and %%trace_memory keep what they make under a name
            one.binds |= {word for word in cell.source.splitlines()[0].split()[1:] if word.isidentifier()}
        one.calls = [f"{number}:{node.lineno}" for node in ast.walk(one.tree) if _shows(node)]
        one.draws = any(
            isinstance(node, ast.With) and "lk.picture(" in ast.unparse(node.items[0]) for node in one.tree.body
        )
        definitions = [node for node in one.tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
        one.makers = {node.name for node in definitions if any(map(_shows, ast.walk(node)))}
        found.append(one)
    return found


def file_of(path: Path, number: int) -> str:
    return f"{path.relative_to(ROOT)}:{number}"


def _names(node: ast.AST, context: type[ast.expr_context]) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, context)}


def _arguments(node: ast.AST) -> set[str]:
    return {one.arg for one in ast.walk(node) if isinstance(one, ast.arg)}


def _inner(node: ast.AST) -> set[str]:
    """Return the names that comprehensions and lambdas bind for themselves."""
    targets = [one.target for one in ast.walk(node) if isinstance(one, ast.comprehension)]
    return _arguments(node) | {name for target in targets for name in _names(target, ast.Store)}


def _imported(node: ast.AST) -> set[str]:
    if not isinstance(node, ast.Import | ast.ImportFrom):
        return set()
    return {alias.asname or alias.name.split(".")[0] for alias in node.names}


def _shows(node: ast.AST) -> bool:
    """Return whether a node is a call of ``lk.widgets.NAME`` or ``lk.predict``, which shows a prediction."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    owner, name = node.func.value, node.func.attr
    if isinstance(owner, ast.Attribute) and owner.attr == "widgets":
        return name not in NOT_DRAWN
    return isinstance(owner, ast.Name) and owner.id == "lk" and name == "predict"


def _changed(node: ast.stmt) -> Iterator[str]:
    """Yield the names whose objects a statement may change: ``x.append(1)``, ``x[0] = 1``, ``fill[1, 1](x)``."""
    targets = node.targets if isinstance(node, ast.Assign) else []
    yield from (name for one in targets if not isinstance(one, ast.Name | ast.Tuple) for name in _root(one))
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        call = node.value
        if isinstance(call.func, ast.Attribute | ast.Subscript):
            for one in (call.func, *call.args):
                yield from _root(one)


def _root(node: ast.AST) -> Iterator[str]:
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    if isinstance(node, ast.Name):
        yield node.id


def needed(document: Sequence[Cell]) -> list[Cell]:
    """Return the cells that show widgets, and those that they depend on, in order."""
    makers = {name for cell in document for name in cell.makers}
    kept: set[int] = set()
    waiting = [at for at, cell in enumerate(document) if cell.calls or cell.needs & makers]
    while waiting:
        at = waiting.pop()
        if at not in kept:
            kept.add(at)
            waiting += [place for name in document[at].needs for place in _origins(document, at, name)]
    return [document[at] for at in sorted(kept)]


def _origins(document: Sequence[Cell], here: int, name: str) -> list[int]:
    """Return the cells before ``here`` that bound and changed a name last; a function may use what is bound later."""
    found = []
    for place in range(here - 1, -1, -1):
        cell = document[place]
        if cell.draws:
            continue
        if name in cell.binds or (name in cell.changes and name not in ("lk", "np", "checks", "torch")):
            found.append(place)
        if name in cell.binds and name not in cell.needs:
            return found
    later = (at for at, cell in enumerate(document) if at > here and name in cell.binds and not cell.draws)
    return found or [place for place in [next(later, None)] if place is not None]


def run(path: Path) -> list[Shown]:
    """Run what the widgets of a document depend on, and return what they show."""
    from IPython.core.interactiveshell import InteractiveShell

    document, shown = str(path.relative_to(ROOT)), []
    shell = InteractiveShell.instance()
    shell.reset(new_session=False)
    shell.run_line_magic("load_ext", "mlsys_labkit")
    show = base.Kind.show

    def note(kind: base.Kind, **state: Any) -> Any:
        made, frame = show(kind, **state), sys._getframe()
        while frame and not frame.f_code.co_filename.startswith(f"{document}:"):
            frame = frame.f_back
        place = f"{frame.f_code.co_filename.rpartition(':')[2]}:{frame.f_lineno}" if frame else ""
        shown.append(Shown(document, place, kind.folder, json.loads(json.dumps(state))))
        return made

    if torch := sys.modules.get("torch"):
        torch.set_grad_enabled(True)  # a lab turns gradients off, for good
    with mock.patch.object(base.Kind, "show", note), contextlib.chdir(path.parent):
        for cell in needed(cells(path)):
            exec(compile(cell.tree, file_of(path, cell.number), "exec"), shell.user_ns)
    shell.run_line_magic("unload_ext", "mlsys_labkit")
    return shown


def calls(path: Path) -> list[str]:
    """Return the places of all calls in a document that show a widget with a state."""
    return [place for cell in cells(path) for place in cell.calls]


def main(out: str) -> None:
    os.environ["LABKIT_DEVICE"] = "h100-sxm"  # as course/conf.py
    found = [one for path in DOCUMENTS for one in run(path)]
    Path(out).write_text(json.dumps([asdict(one) for one in found]), "utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
