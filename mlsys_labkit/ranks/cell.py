"""``%%ranks 4``: a notebook cell that runs on every rank, each with variables of its own that outlive the cell."""

from __future__ import annotations

import argparse
import ast
import builtins
import copy
import keyword
import pickle
import shlex
import symtable
import sys
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from mlsys_labkit._base.cells import cell_number
from mlsys_labkit.errors import RanksError
from mlsys_labkit.ranks import by_value
from mlsys_labkit.ranks.launch import chosen_backend, copied, start
from mlsys_labkit.ranks.result import Run

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

_USAGE = "%%ranks 4 [name] [--backend local|gloo|nccl|auto] [--timeout seconds] [--memory]"
_ALWAYS = ("rank", "world_size")
_MODULE = "ranks_cell"
_KEPT = "__kept__"  # among a rank's variables: the names that its cells have assigned
_HOME = "__home__"  # and a function whose globals they are: functions of one pickle share them again when unpacked

# What the ranks of (how many, backend) have kept from cell to cell, and the last cell's run.
_spaces: dict[tuple[int, str], list[dict[str, Any]]] = {}
_last: list[Run] = []


@dataclass(frozen=True)
class CellOptions:
    """The line behind ``%%ranks``."""

    world_size: int
    name: str
    backend: str
    timeout_seconds: float
    memory: bool


def options(line: str) -> CellOptions:
    """Parse the line of a ``%%ranks`` cell. Raises RanksError for a line that is not understood."""
    parser = _Parser(add_help=False)
    parser.add_argument("world_size", type=int)
    parser.add_argument("name", nargs="?", default="")
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--timeout", type=float, default=60.0)
    parser.add_argument("--memory", action="store_true")
    try:
        given = parser.parse_intermixed_args(shlex.split(line))
        if given.name and (not given.name.isidentifier() or keyword.iskeyword(given.name)):
            raise ValueError(f"the run is kept under a variable name; {given.name!r} is not one")
        if not given.timeout > 0:
            raise ValueError(f"--timeout must be positive, got {given.timeout:g}")
    except ValueError as error:
        raise RanksError(f"{error}; write it as {_USAGE}") from None
    return CellOptions(given.world_size, given.name, given.backend, given.timeout, given.memory)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ValueError(message)


def run_cell(shell: InteractiveShell, line: str, cell: str) -> Run:
    """Run a cell on every rank.

    A rank keeps the names that its cells assign, for later cells with as many ranks on the same backend. Other names
    are copied from the notebook each time a cell reads them. Groups, and what was built on them, live as long as the
    cell.

    Raises SyntaxError, and what ``ranks.run`` raises.
    """
    asked = options(line)
    backend, size = chosen_backend(asked.backend, asked.world_size)
    source = "\n" + shell.transform_cell(cell)  # the cell's own line numbers: its first is the magic's
    file = shell.compile.cache(source, _cell_number(shell))
    code = _compiled(source, file)
    read, assigned = names(source)
    if "get_ipython" in read:
        raise RanksError("ranks have no magics and no ! commands; write those in another cell")
    spaces = _spaces.get((size, backend)) or [{_KEPT: set()} for _ in range(size)]
    notebook = shell.user_ns
    given = []
    for space in spaces:
        needed = _needed(read, space)
        if lost := next((name for name in needed if isinstance(space.get(name), Lost)), None):
            raise RanksError(f"{lost} of an earlier %%ranks cell {space[lost].why}; make it again in this cell")
        wanted = [name for name in needed if name in notebook and name not in _ALWAYS and not name.startswith("__")]
        fresh = {name: notebook[name] for name in wanted if name not in space[_KEPT]}
        if backend == "local":
            fresh = _copied(fresh)
        given.append((code, assigned, space, fresh, backend == "local"))
    run = start(run_on_rank, given, backend, asked.timeout_seconds, asked.memory, quiet=False)
    values = run.values if backend == "local" else [pickle.loads(value) for value in run.values]
    _spaces[size, backend] = values
    shown = [
        {name: one[name] for name in sorted(one[_KEPT]) if name in one and not isinstance(one[name], Lost)}
        for one in values
    ]
    run = Run(shown, run.trace, run.outputs, run.snapshots, run.memory, run.backend)
    _last[:] = [run]
    if asked.name:
        notebook[asked.name] = run
    return run


def _cell_number(shell: InteractiveShell) -> int:
    """Return the number of the running cell.

    Some versions of IPython raise ``execution_count`` before the cell has ended, so the stack is searched first.
    """
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None:
        number = cell_number(frame.f_code.co_filename, shell)
        if number is not None:
            return number
        frame = frame.f_back
    return shell.execution_count


def pull(name: str) -> list[Any]:
    """Return the variable ``name`` of every rank, as the last ``%%ranks`` cell left it.

    Raises RanksError if there was no such cell, or a rank has no such variable.

    Example:
        >>> from IPython.core.interactiveshell import InteractiveShell
        >>> from mlsys_labkit.magics import load_ipython_extension
        >>> shell = InteractiveShell()
        >>> load_ipython_extension(shell)
        >>> _ = shell.run_cell_magic("ranks", "2 --backend local", "square = rank**2")
        >>> pull("square")
        [0, 1]

    Reference: the same name in ipyparallel, https://ipyparallel.readthedocs.io/
    """
    if not _last:
        raise RanksError(f"pull({name!r}) looks into the last %%ranks cell, and there was none that ended well")
    return _last[0][name]


@dataclass(frozen=True)
class _Code:
    """The code of a cell; ``last`` is an expression whose value is shown."""

    body: types.CodeType
    last: types.CodeType | None


def _compiled(source: str, file: str) -> _Code:
    compile(source, file, "exec")  # errors in the order of the lines
    tree = ast.parse(source, file)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    value = compile(ast.Expression(last.value), file, "eval") if isinstance(last, ast.Expr) else None
    return _Code(compile(tree, file, "exec"), value)


def run_on_rank(code: _Code, assigned: set[str], space: dict[str, Any], fresh: Mapping[str, Any], local: bool) -> Any:
    """Run the cell on one rank and return the variables it keeps, packed where ranks are processes."""
    import torch.distributed as dist

    space = _at_home(space)
    space.update(fresh)
    space.update(zip(_ALWAYS, (dist.get_rank(), dist.get_world_size()), strict=True))
    space.update(__name__=_MODULE, __builtins__=builtins)
    exec(code.body, space)
    if code.last is not None:
        value = eval(code.last, space)
        if value is not None:
            print(repr(value))
    space[_KEPT] |= assigned
    space[_HOME] = types.FunctionType((lambda: None).__code__, space)
    return space if local else _packed({name: space[name] for name in space[_KEPT] | {_KEPT, _HOME} if name in space})


def names(source: str) -> tuple[set[str], set[str]]:
    """Return the global names that a cell reads, and those that it assigns (also by imports and definitions).

    Example:
        >>> sorted(map(sorted, names("y = max(x, n)")))
        [['max', 'n', 'x'], ['y']]

    Python 3.12 counts the variables of comprehensions, too; a cell that assigns none of them loses nothing by it.
    Reference: Python documentation, ``symtable``.
    """
    table = symtable.symtable(source, "<cell>", "exec")
    read, assigned = set(), set()
    for scope, symbol in _symbols(table):
        if scope is not table and not symbol.is_global():
            continue
        if symbol.is_referenced():
            read.add(symbol.get_name())
        if symbol.is_assigned() or symbol.is_imported():
            assigned.add(symbol.get_name())
    return read, assigned


def _needed(read: set[str], space: Mapping[str, Any]) -> list[str]:
    """Return these names, and those that the functions and classes of earlier cells that they refer to read."""
    found, todo = set(), list(read)
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            value = space.get(name)
            if getattr(value, "__module__", None) == _MODULE:
                for one in _functions(value):
                    todo += _global_names(getattr(one, "__code__", None))
    return sorted(found)


def _functions(value: Any) -> Iterator[Any]:
    """Yield a function, or those of a class or of its object: methods, properties, static and class methods."""
    if type(value) is types.FunctionType:  # isinstance would run its code
        yield value
        return
    kind = value if isinstance(value, type) else type(value)
    for base in (base for base in kind.__mro__ if base.__module__ == _MODULE):
        for one in vars(base).values():
            yield from (one.fget, one.fset, one.fdel) if isinstance(one, property) else [getattr(one, "__func__", one)]


def _global_names(code: Any) -> list[str]:
    if not isinstance(code, types.CodeType):
        return []
    return [*code.co_names, *(name for const in code.co_consts for name in _global_names(const))]


def _symbols(table: symtable.SymbolTable) -> Iterator[tuple[symtable.SymbolTable, symtable.Symbol]]:
    yield from ((table, symbol) for symbol in table.get_symbols())
    for child in table.get_children():
        yield from _symbols(child)


def _copied(fresh: dict[str, Any]) -> dict[str, Any]:
    modules = {name: value for name, value in fresh.items() if isinstance(value, types.ModuleType)}
    others = {name: value for name, value in fresh.items() if name not in modules}
    try:
        return modules | copy.deepcopy(others)  # in one call, so that an object with two names stays one object
    except Exception:
        return modules | {name: copied(value, f"{name} of the notebook") for name, value in others.items()}


@dataclass(frozen=True)
class Lost:
    """A placeholder for a variable that could not leave its process."""

    why: str


def _packed(space: dict[str, Any]) -> bytes:
    try:
        return by_value.dumps(space)
    except Exception:
        kept: dict[str, Any] = {}
        for name, value in space.items():
            try:
                by_value.dumps(value)
                kept[name] = value
            except Exception as error:
                kept[name] = Lost(f"could not be kept ({error})")
        return by_value.dumps(kept)


def _at_home(space: dict[str, Any]) -> dict[str, Any]:
    """Return a rank's variables as the globals of the functions and methods among them."""
    globals_: dict[str, Any] = space[_HOME].__globals__ if _HOME in space else {}
    globals_.update(space)
    return globals_
