"""The program of a run: its modules, functions and classes, found from the function that the ranks call.

Files outside Python's own folders and outside installed packages belong to it, and so do installed packages that use
``torch.distributed``. Values are copied for a rank only if the program's code names them.
"""

from __future__ import annotations

import builtins
import functools
import gc
import sys
import threading
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import EnumMeta
from pathlib import Path
from types import (
    BuiltinFunctionType,
    CellType,
    CodeType,
    FrameType,
    FunctionType,
    MappingProxyType,
    MethodType,
    ModuleType,
)
from typing import Any, Literal

import torch
import torch.distributed as dist

from mlsys_labkit.ranks.local import patches
from mlsys_labkit.ranks.local.code_names import names_in
from mlsys_labkit.ranks.local.places import (
    Attributes,
    Closure,
    Contents,
    Defaults,
    Exchanged,
    Loggers,
    Modules,
    Place,
    Process,
    Variables,
)
from mlsys_labkit.ranks.local.settings import ProcessSettings

_LIBRARIES = ("torch", "numpy", "IPython", "ipykernel", "pytest", "_pytest")
_EXCHANGED = (builtins, dist, torch.nn.functional)  # exchanging their functions is common
_MOST_ITEMS = 1000  # of a container that is searched for functions: beyond it, it is data
_HOLDERS = (deque, MappingProxyType)
_CACHES = functools._lru_cache_wrapper
_sample: Any = functools.singledispatch(lambda _: None)
_DISPATCH = {_sample.dispatch.__code__, _sample.register.__code__}  # they keep what is registered in their closures
_ANY_GLOBAL = {"globals", "eval", "exec", "locals", "vars"}  # a function that names one may mean any global
_ANY_ATTRIBUTE = {"getattr", "vars", "attrgetter", "eval", "exec"}
_NOT_THE_PROGRAMS = {"In", "Out", "exit", "quit", "get_ipython"}  # of a notebook's globals


@dataclass
class Program:
    """A program's places, and the names in each whose values a rank gets a copy of.

    Attributes:
        places: in which a rank may change something.
        needed: the names to copy, for each place.
        caches: functions with a ``functools`` cache.
        imports: modules of torch that its code imports.
        classes: whose objects it makes.
        of_thread: the class and the attributes of each ``threading.local`` on this thread, by its id.
    """

    places: list[Place]
    needed: list[set[str]]
    caches: list[Any]
    imports: set[str]
    classes: list[type]
    of_thread: dict[int, tuple[type, dict[str, Any]]]


def find_program(fn: Any, arguments: Any) -> Program:
    """Return the program that ``fn``, and the functions in ``arguments`` of modules, belong to.

    A path to a Python file among the arguments is that of a program, which each rank will run.
    """
    search = _Search()
    search.visit([fn])
    search.executed = False  # code that a rank has executed in variables of its own comes to it as an argument
    search.visit([arguments])
    files = {one for own in arguments for one in own if isinstance(one, Path) and one.suffix == ".py"}
    search.runs_a_file = bool(files)
    for tree, code in (parts for file in files for parts in patches.files_of(file)):
        patches.import_patched_libraries(tree)
        search.visit([code])
    search.follow_names()
    return search.program()


def belongs(module: ModuleType) -> bool:
    """Return whether a module is part of a program, not of Python, of the kit, or of a library."""
    kind = _kind(module)
    return kind == "program" or (kind == "installed" and _uses_dist(module, len(vars(module))))


def forget_modules() -> None:
    """Forget what kinds of modules there were: the modules of ranks would be kept, with their tensors."""
    _kind.cache_clear()
    _uses_dist.cache_clear()


def is_library(kind: type) -> bool:
    """Return whether a class is a library's, but torch's: its objects are copied part by part."""
    module = sys.modules.get(kind.__module__)
    return module is not None and kind.__module__.partition(".")[0] != "torch" and not belongs(module)


@functools.lru_cache(8192)
def _uses_dist(module: ModuleType, _size: int) -> bool:
    return any(value is dist for value in list(vars(module).values()))


@functools.lru_cache(8192)
def _kind(module: ModuleType) -> Literal["program", "installed", "library"]:
    about = vars(module)  # no attribute: some libraries import more of themselves when one is asked for
    top = str(about.get("__name__", "")).partition(".")[0]
    if top == "__main__":
        return "program"
    spec, file = about.get("__spec__"), about.get("__file__")
    made = spec is None and file is None  # by the program, which may give it the name of one of Python's
    if top in patches.KIT or top in _LIBRARIES or (top in sys.stdlib_module_names and not made):
        return "library"
    if not isinstance(file, str):
        folders = [*(getattr(spec, "submodule_search_locations", None) or ())]  # of a package without __init__.py
        if not folders:
            return "program" if spec is None else "library"
        file = f"{folders[0]}/"
    if any(folder in file for folder in patches.INSTALLED):
        return "installed"
    return "library" if file.startswith(patches.STANDARD) else "program"


@dataclass
class _Search:
    seen: dict[int, Any] = field(default_factory=dict)  # by id; the object is kept, so that its id stays its own
    globals: dict[int, dict[str, Any]] = field(default_factory=dict)
    functions: list[FunctionType] = field(default_factory=list)
    classes: list[type] = field(default_factory=list)
    cells: list[CellType] = field(default_factory=list)
    caches: list[Any] = field(default_factory=list)
    names: dict[int, set[str]] = field(default_factory=lambda: defaultdict(set))  # read as globals, by globals' id
    attributes: set[str] = field(default_factory=set)
    patched: set[str] = field(default_factory=set)  # attributes that are set, but on self
    imports: set[str] = field(default_factory=set)
    runs_a_file: bool = False  # whose code, as a whole, is not known
    of_thread: dict[int, tuple[type, dict[str, Any]]] = field(default_factory=dict)
    whole: set[int] = field(default_factory=set)  # ids of globals of which any may be meant
    any_attribute: bool = False  # whether any attribute of a class may be meant
    any_class: bool = False  # whether an attribute may be set on any class
    changes_items: bool = False  # of any container
    executed: bool = True  # whether globals may belong to no module

    def __post_init__(self) -> None:
        modules = [one for one in list(sys.modules.values()) if _is(one, ModuleType)]
        self.modules = {id(vars(one)): one for one in modules if belongs(one)}
        for key, module in self.modules.items():
            self.globals[key] = vars(module)

    def visit(self, roots: Iterable[Any]) -> None:
        todo = [*roots]
        while todo:
            one = todo.pop()
            if id(one) not in self.seen and not _is(one, (str, bytes, int, float, BuiltinFunctionType)):
                self.seen[id(one)] = one
                todo += self._inside(one)

    def _inside(self, one: Any) -> Iterator[Any]:
        """Yield what functions may hide in."""
        if _is(one, (dict, list, tuple, set, frozenset)):
            yield type(one)
        if _is(one, FunctionType):
            yield from self._function(one)
        elif _is(one, type):
            yield from self._class(one)
        elif _is(one, CodeType):
            self._code(one)
        elif _is(one, _CACHES):
            self.caches.append(one)
            yield one.__wrapped__
        elif _is(one, MethodType):
            yield from (one.__func__, one.__self__)
        elif _is(one, functools.partial):
            yield from (one.func, *one.args, *one.keywords.values())
        elif _is(one, (staticmethod, classmethod)):
            yield one.__func__
        elif _is(one, property):
            yield from (each for each in (one.fget, one.fset, one.fdel) if each)
        elif _is(one, functools.cached_property):
            yield one.func
        elif _is(one, dict):
            yield from list(one)[:_MOST_ITEMS]
            yield from list(one.values())[:_MOST_ITEMS]
            yield getattr(one, "default_factory", None) if _is(one, defaultdict) else None
        elif _is(one, (list, tuple, set, frozenset)):
            yield from list(one)[:_MOST_ITEMS]
        elif not _is(one, (ModuleType, FrameType)):
            if _is(one, threading.local):
                self.of_thread[id(one)] = type(one), dict(vars(one))
            yield type(one)
            yield from patches.attributes_of(one).values()
            if _is(one, _HOLDERS) or any("__slots__" in vars(kind) for kind in type(one).__mro__):
                yield from gc.get_referents(one)[:_MOST_ITEMS]

    def _function(self, one: FunctionType) -> Iterator[Any]:
        cells = [cell for cell in one.__closure__ or () if id(cell) not in self.seen]
        self.seen.update((id(cell), cell) for cell in cells)
        values = [value for cell in cells for value in Closure(cell).read().values()]
        yield from values  # also of a library's decorator: it holds the program's function
        if not self._is_of_program(one.__module__, one.__globals__):
            self.cells += [
                cell
                for cell in cells
                if one.__code__ in _DISPATCH or any(_is(value, _CACHES) for value in Closure(cell).read().values())
            ]
            return
        self.cells += cells
        self.functions.append(one)
        self.globals.setdefault(id(one.__globals__), one.__globals__)
        read = names_in(one.__code__)
        self.names[id(one.__globals__)] |= read.globals
        if read.globals & _ANY_GLOBAL or ("sys" in read.globals and "modules" in read.attributes):
            self.whole.add(id(one.__globals__))
        self.any_attribute |= bool(read.globals & _ANY_ATTRIBUTE or "__dict__" in read.attributes)
        self._code(one.__code__)
        yield from Defaults(one).read().values()

    def _code(self, code: CodeType) -> None:
        read = names_in(code)
        self.attributes |= read.attributes | read.texts
        self.imports |= read.imports
        for module in patches.imports_set_on(code):
            patches.import_library(module)  # what it is before the run is not known later
            self.imports.add(module)
        self.patched |= patches.names_set(code)
        self.any_class |= patches.sets_on_types(code)
        self.changes_items |= patches.changes_items(code)

    def _class(self, one: type) -> Iterator[Any]:
        module = sys.modules.get(one.__module__)
        if module is not None and _is(module, ModuleType) and not belongs(module):
            return
        if one.__flags__ & patches.IMMUTABLE:  # Cython keeps such classes in a module without a file
            return
        self.classes.append(one)
        yield from (value for name, value in vars(one).items() if not name.startswith("__") or _is_called(value))
        yield from one.__bases__
        yield type(one)

    def _is_of_program(self, module: str | None, variables: dict[str, Any]) -> bool:
        if id(variables) in self.globals:
            return True
        known = sys.modules.get(module or "")
        return self.executed and (known is None or vars(known) is not variables)

    def follow_names(self) -> None:
        """Visit what the found functions name, until nothing new is named."""
        size = -1
        while len(self.seen) != size:
            size = len(self.seen)
            for key, variables in list(self.globals.items()):
                self.visit([variables[name] for name in self._named(key) if name in variables])

    def _named(self, key: int) -> set[str]:
        module = self.modules.get(key)
        if key in self.whole:
            return {name for name in self.globals[key] if not name.startswith("_")} - _NOT_THE_PROGRAMS
        return self.names[key] | self.attributes if module and self._is_reached(module) else self.names[key]

    def _is_reached(self, module: ModuleType) -> bool:
        """Return whether the code reads the module's variables by attribute; nobody does so with a notebook's."""
        name = module.__name__
        return name != "__main__" and (id(module) in self.seen or name in self.imports)

    def _of_libraries(self) -> list[Place]:
        """Return the places that cost as much at each switch as all others, where the code can reach them."""
        unknown = self.runs_a_file or not (self.functions or self.attributes)
        places: list[Place] = []
        for one in _EXCHANGED:
            reached = [name for name in vars(one) if unknown or self.any_attribute or name in self.attributes]
            places.append(Exchanged(vars(one), tuple(reached)))
        if unknown or "logging" in self.imports or any("logging" in names for names in self.names.values()):
            places.append(Loggers())
        owners = self._owners()
        places.append(patches.Patches(owners, self.patched))
        if self.changes_items:
            places += map(Contents, patches.named_containers(owners, self.attributes))
        places.append(ProcessSettings(self.attributes | self.imports | set().union(*self.names.values())))
        return places

    def _owners(self) -> list[Any]:
        if not (self.patched or self.changes_items):
            return []
        named = [part for name in self.imports for part in _with_parents(name)]
        roots = [*self.seen.values(), *(sys.modules[name] for name in named if name in sys.modules)]
        if self.any_class:
            roots += patches.classes_below(torch.nn.Module, torch.optim.Optimizer)
            modules = [one for one in roots if _is(one, ModuleType) and one.__name__.partition(".")[0] != "torch"]
            roots += [value for one in modules for value in list(vars(one).values()) if _is(value, type)]
        return patches.named_owners(
            roots, self.attributes | {part for name in named for part in name.split(".")}, _of_library
        )

    def program(self) -> Program:
        pairs: list[tuple[Place, set[str]]] = [
            (Process(), set()),
            (Modules(lambda module: _kind(module) == "program"), set()),
            (Variables(vars(torch._tensor_str.PRINT_OPTS)), set()),
            *((place, set()) for place in self._of_libraries()),
        ]
        for key, variables in self.globals.items():
            pairs.append((Variables(variables), {name for name in self._named(key) if name in variables}))
        for one in self.classes:
            named = {name for name in vars(one) if not name.startswith("__") and self.any_attribute}
            named |= {name for name in self.attributes if name in vars(one)}
            pairs.append((Attributes(one), set() if _is(one, EnumMeta) else named))
            if _is(one, EnumMeta):
                members = [vars(member) for member in vars(one)["_member_map_"].values()]
                pairs += [(Variables(own), {name for name in own if not name.startswith("_")}) for own in members]
        for function in self.functions:
            pairs.append((Variables(vars(function)), set(vars(function))))
            if defaults := Defaults(function).read():
                pairs.append((Defaults(function), set(defaults)))
        pairs += [(Closure(cell), {""}) for cell in self.cells]
        places, needed = [place for place, _ in pairs], [needed for _, needed in pairs]
        of_torch = {name for name in self.imports if name.startswith("torch.")}
        return Program(places, needed, self.caches, of_torch, self.classes, self.of_thread)


def _is(one: Any, kinds: type | tuple[type, ...]) -> bool:
    """Return whether ``one`` is of ``kinds``, without a question to ``one``: that may run its code."""
    return issubclass(type(one), kinds)


def _with_parents(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts) + 1)]


def _of_library(one: Any) -> bool:
    module = one if _is(one, ModuleType) else sys.modules.get(str(one.__module__))
    return module is not None and _is(module, ModuleType) and _kind(module) != "program"


def _is_called(value: Any) -> bool:
    return callable(value) or _is(value, (classmethod, staticmethod, property))
