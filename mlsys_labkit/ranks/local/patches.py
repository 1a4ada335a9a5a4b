"""Attributes of the classes, functions and modules of libraries that a program sets: each rank has its own.

A library has thousands of classes, and a rank's turn ends thousands of times. So only those that the program's code
names are looked at, and of their attributes only those that its code sets.
"""

from __future__ import annotations

import ast
import dis
import functools
import importlib.util
import sys
import sysconfig
import warnings
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

IMMUTABLE = 1 << 8  # Py_TPFLAGSIMMUTABLETYPE
_ABSENT = object()
_SETS = {"STORE_ATTR", "DELETE_ATTR"}
_SETS_BY_TEXT = {"setattr", "delattr", "__setattr__", "__delattr__", "patch", "monkeypatch", "__dict__", "vars"}
_IMPORTS_BY_TEXT = {"import_module", "__import__"}
_CLASS_OF = {"type", "__class__", "__mro__", "__bases__"}
_CHANGES = {"add", "append", "appendleft", "clear", "extend", "insert", "pop", "remove", "setdefault", "update"}
CONTAINERS = (dict, OrderedDict, defaultdict, list, deque, set)
_MOST_ITEMS = 1000  # of a container that each switch looks at
_MOST_FILES = 1000
_OWNERS = (ModuleType, type, FunctionType)
STANDARD = tuple({sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib")})
INSTALLED = ("/site-packages/", "/dist-packages/")
KIT = ("mlsys_labkit", "mlsys_grading")


@functools.lru_cache(4096)
def names_set(code: CodeType) -> frozenset[str]:
    """Return the names of the attributes that ``code`` may set on anything but ``self``.

    Example:
        >>> def f(self, model):
        ...     self.rank = model.rank = 0
        ...     setattr(model, "size", 1)
        >>> sorted(names_set(f.__code__))
        ['rank', 'size']
    """
    found: set[str] = set()
    before: Any = None
    for instruction in dis.get_instructions(code):
        if instruction.opname in _SETS and before not in ("self", ("self",)):
            found.add(instruction.argval)
        before = instruction.argval  # Python 3.13 loads two variables at once
        before = before[-1:] if isinstance(before, tuple) else before
    if _SETS_BY_TEXT & {*code.co_names}:
        found |= {name for text in texts_in(code) if (name := text.rpartition(".")[2]).isidentifier()}
    return frozenset(found).union(*(names_set(const) for const in code.co_consts if isinstance(const, CodeType)))


def texts_in(code: CodeType) -> Iterator[str]:
    """Yield the texts among the constants of ``code``, and those in its tuples and sets.

    Example:
        >>> sorted(texts_in(compile("for name in ('rank', 'size'): f(name)", "", "exec")))
        ['rank', 'size']
    """
    todo = [*code.co_consts]
    while todo:
        const = todo.pop()
        if isinstance(const, (tuple, frozenset)):
            todo += const
        elif isinstance(const, str):
            yield const


@functools.lru_cache(4096)
def sets_on_types(code: CodeType) -> bool:
    """Return whether ``code`` may set an attribute on the class of an object, which it does not name.

    Example:
        >>> def f(layer):
        ...     type(layer).rank = 0
        >>> sets_on_types(f.__code__)
        True
    """
    inner = [const for const in code.co_consts if isinstance(const, CodeType)]
    return bool(_CLASS_OF & {*code.co_names} and names_set(code)) or any(map(sets_on_types, inner))


@functools.lru_cache(4096)
def imports_set_on(code: CodeType) -> frozenset[str]:
    """Return the modules, and the names in them, that ``code`` imports and may set an attribute on.

    Example:
        >>> def f():
        ...     import json, wave
        ...     from decimal import Context, Decimal
        ...     json.rank = Decimal.rank = 0
        ...     importlib.import_module("queue").rank = "this"
        ...     wave.open("a")
        >>> sorted(imports_set_on(f.__code__))
        ['decimal.Decimal', 'json', 'queue']
    """
    bound: dict[str, str] = {}
    loaded, roots, names, by_text = set[str](), set[str](), set[str](), set[str]()
    for one in all_code(code):
        names |= {*one.co_names}
        module = root = imported = before = ""
        for instruction in dis.get_instructions(one):
            kind, value = instruction.opname, instruction.argval
            if kind == "IMPORT_NAME":
                module = imported = value
            elif kind.startswith("STORE_") and kind not in ("STORE_ATTR", "STORE_SUBSCR") and imported:
                bound[value] = imported
                imported = ""
            elif kind == "IMPORT_FROM":
                bound[value] = imported = f"{module}.{value}"  # perhaps a module, too
            elif kind.startswith(("LOAD_FAST", "LOAD_NAME", "LOAD_GLOBAL", "LOAD_DEREF")):
                both = value if isinstance(value, tuple) else (value,)
                loaded.update(both)
                root = both[-1]
            elif kind in _SETS:
                roots.add(root)
            elif kind == "LOAD_CONST" and isinstance(value, str) and before in _IMPORTS_BY_TEXT:
                by_text.add(value)
            before = before if kind == "PUSH_NULL" else str(value)
    if names & (_SETS_BY_TEXT | _CLASS_OF):
        roots |= loaded
    return frozenset({bound[root] for root in roots & bound.keys()} | (by_text if roots else set()))


def all_code(code: CodeType) -> Iterator[CodeType]:
    """Yield ``code`` and that of the functions and classes inside it."""
    yield code
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield from all_code(const)


def classes_below(*bases: type) -> set[type]:
    """Return the classes that are made of ``bases`` by inheritance, at any distance, with ``bases`` themselves."""
    found: set[type] = set()
    todo = [*bases]
    while todo:
        one = todo.pop()
        below: list[type] = type.__subclasses__(one)
        todo += [each for each in below if each not in found]
        found.add(one)
    return found


def is_installed(file: str) -> bool:
    """Return whether a file is Python's or an installed package's."""
    return any(folder in file for folder in INSTALLED) or file.startswith(STANDARD)


class Patches:
    """The attributes of libraries that a program may set: ``names``, on each of the ``owners``."""

    def __init__(self, owners: Iterable[Any], names: Iterable[str]) -> None:
        self._names = frozenset(names)
        self._owners = list(owners) if self._names else []
        self._held = [
            vars(owner) if issubclass(type(owner), _OWNERS) else attributes_of(owner) for owner in self._owners
        ]

    def read(self) -> dict[str, Any]:
        names = self._names
        return {
            str(place): {name: held[name] for name in names & held.keys() if not isinstance(held[name], ModuleType)}
            for place, held in enumerate(self._held)
        }

    def write(self, values: Mapping[str, Any]) -> None:
        for place, now in self.read().items():
            wanted = values[place]
            if now.keys() == wanted.keys() and all(now[name] is wanted[name] for name in now):  # == may be a tensor
                continue
            owner = self._owners[int(place)]
            for name in now.keys() - wanted.keys():
                (type.__delattr__ if isinstance(owner, type) else object.__delattr__)(owner, name)
            for name, value in wanted.items():
                if now.get(name, _ABSENT) is not value:
                    (type.__setattr__ if isinstance(owner, type) else object.__setattr__)(owner, name, value)


def named_owners(roots: Iterable[Any], names: set[str], of_library: Callable[[Any], bool]) -> list[Any]:
    """Return modules, classes and functions of libraries in ``roots``, and with objects what ``names`` reach there."""
    found: dict[int, Any] = {}
    todo = [*roots]
    while todo:
        one = todo.pop()
        if id(one) in found or not issubclass(type(one), _OWNERS) or not of_library(one):
            continue
        found[id(one)] = one
        if not isinstance(one, FunctionType):
            held = vars(one)
            todo += [held[name] for name in names & held.keys()]
            objects = [each for each in map(held.get, names & held.keys()) if _is_plain_object(each)]
            found.update((id(each), each) for each in objects)
            todo += map(type, objects)
    return [one for one in found.values() if not (isinstance(one, type) and one.__flags__ & IMMUTABLE)]


def named_containers(owners: Iterable[Any], names: set[str]) -> list[Any]:
    """Return the containers that modules and classes among ``owners`` hold under ``names``."""
    own = {name for name in names if not name.startswith("__")}
    held = [vars(one) for one in owners if issubclass(type(one), (ModuleType, type))]
    found = [each[name] for each in held for name in own & each.keys()]
    apart = {id(each) for each in (sys.modules, sys.path, sys.argv, warnings.filters)}  # are kept as what they mean
    return list(
        {
            id(one): one
            for one in found
            if type(one) in CONTAINERS and len(one) <= _MOST_ITEMS and id(one) not in apart
        }.values()
    )


@functools.lru_cache(4096)
def changes_items(code: CodeType) -> bool:
    """Return whether ``code`` may change an item of a container.

    Example:
        >>> def f(names):
        ...     names["rank"] = 0
        >>> changes_items(f.__code__)
        True
    """
    inner = [const for const in code.co_consts if isinstance(const, CodeType)]
    stores = any(each.opname in ("STORE_SUBSCR", "DELETE_SUBSCR") for each in dis.get_instructions(code))
    return stores or bool(_CHANGES & {*code.co_names}) or any(map(changes_items, inner))


def _is_plain_object(one: Any) -> bool:
    """Return whether an object that a library holds keeps its attributes in a dictionary that may be changed."""
    return (
        not issubclass(type(one), _OWNERS)
        and bool(attributes_of(one))
        and not type(one).__module__.startswith("torch.distributed")  # a rank's groups are kept elsewhere
    )


def attributes_of(one: Any) -> dict[str, Any]:
    """Return the attributes of an object, without a question to it: that may run its code."""
    try:
        held = object.__getattribute__(one, "__dict__")
    except AttributeError:
        return {}
    return held if type(held) is dict else {}


def files_of(file: Path) -> Iterator[tuple[ast.Module, CodeType]]:
    """Yield a program's file, and those that it imports and that are no library's, without running any.

    They are looked for beside it, in the working directory and in ``sys.path``: as trees and as code.
    """
    todo, seen = [file], set[Path]()
    beside = [file.parent, Path.cwd(), *(Path(folder) for folder in sys.path if not is_installed(f"{folder}/"))]
    while todo and len(seen) < _MOST_FILES:
        path = todo.pop()
        if path in seen or not path.is_file():
            continue
        seen.add(path)
        try:
            text = path.read_bytes()
            tree, code = ast.parse(text), compile(text, str(path), "exec", dont_inherit=True)
        except (OSError, SyntaxError, ValueError):  # the rank that imports it tells of that
            continue
        yield tree, code
        for module, name, level in _imports(tree):
            if module.partition(".")[0] in KIT:
                continue
            folders = [path.parents[level - 1]] if level else beside
            parts = [part for part in (*module.split("."), name) if part]
            for length in range(1, len(parts) + 1):
                wholes = [folder.joinpath(*parts[:length]) for folder in folders]
                todo += [each for whole in wholes for each in (whole.with_suffix(".py"), whole / "__init__.py")]


def _imports(tree: ast.AST) -> Iterator[tuple[str, str, int]]:
    """Yield each import: the module, the name from it or "", and the number of dots before."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((each.name, "", 0) for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.module or "", each.name, node.level) for each in node.names)


def import_patched_libraries(tree: ast.Module) -> None:
    """Import the libraries on which a file sets something, so that what they are before the run is known."""
    roots = {_root(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute) and _is_set(node)}
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and ast.unparse(call.func).rpartition(".")[2] in ("setattr", "delattr", "object"):
            roots |= {_root(argument) for argument in call.args[:1]}
    for node in tree.body:
        if isinstance(node, ast.Import):
            modules = [each.name for each in node.names if (each.asname or each.name.partition(".")[0]) in roots]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            modules = [node.module or "" for each in node.names if (each.asname or each.name) in roots]
        else:
            continue
        for module in modules:
            import_library(module)


def import_library(module: str) -> None:
    """Import a module that is Python's or an installed package's; do nothing where that fails."""
    if module in sys.modules:
        return
    with suppress(Exception):
        spec = importlib.util.find_spec(module.partition(".")[0])
        if spec and spec.origin and is_installed(spec.origin):
            importlib.import_module(module)


def _is_set(node: ast.Attribute) -> bool:
    return isinstance(node.ctx, (ast.Store, ast.Del))


def _root(node: ast.AST) -> str:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""
