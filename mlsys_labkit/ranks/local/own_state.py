"""Each rank's own part of the state that a process has once: a copy from before the run, and its changes since."""

from __future__ import annotations

import copy
import copyreg
import functools
import importlib
import io
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from types import FunctionType, ModuleType
from typing import Any

from mlsys_labkit.errors import RanksError
from mlsys_labkit.ranks.local.program import find_program
from mlsys_labkit.ranks.random_state import RandomState
from mlsys_labkit.ranks.recording import torch_private

Values = list[dict[str, Any]]  # of each place of the program


class Notebook:
    """The state of the process before the run: each rank begins with a copy of it, and it is restored at the end."""

    def __init__(self, fn: Any, arguments: Any) -> None:
        self.fn, self.program = fn, find_program(fn, arguments)
        for name in self.program.imports:
            with suppress(ImportError):
                importlib.import_module(name)  # a default argument in it would be the group of the first rank
        self.values = self.read()
        self.random = RandomState.capture()

    def read(self) -> Values:
        return [place.read() for place in self.program.places]

    def write(self, values: Values) -> None:
        for place, own in zip(self.program.places, values, strict=True):
            place.write(own)

    def restore(self) -> None:
        self.write(self.values)
        self.random.restore()

    def copied(self) -> tuple[Values, Any]:
        """Return a copy of the values, as another process would have it, and of the function itself."""
        memo: dict[int, Any] = {id(self.values): self.values}
        memo |= {id(one): functools.lru_cache(**one.cache_parameters())(one.__wrapped__) for one in self.program.caches}
        with torch_private.unseen(), _shared_by_ranks():
            values = [
                own | {name: _copied(name, own[name], memo) for name in needed if name in own}
                for own, needed in zip(self.values, self.program.needed, strict=True)
            ]
            return values, _copied("the function", self.fn, memo)


class OwnState:
    """The state of one rank while another one runs."""

    def __init__(self, notebook: Notebook) -> None:
        self._notebook = notebook
        self._values: Values | None = None
        self._random = notebook.random
        self.fn: Any = None

    def save(self) -> None:
        self._values, self._random = self._notebook.read(), RandomState.capture()

    def restore(self) -> None:
        if self._values is None:
            self._values, self.fn = self._notebook.copied()
        self._notebook.write(self._values)
        self._random.restore()


def _copied(name: str, value: Any, memo: dict[int, Any]) -> Any:
    """Return a deep copy of ``value``, or itself where it is none of a rank's own: a file, a socket, a library."""
    if isinstance(value, _NEVER_COPIED):
        return value
    try:
        return copy.deepcopy(value, memo)
    except Exception as error:
        if isinstance(value, Iterator):
            raise RanksError(
                f"{name!r} is one {type(value).__name__} for all ranks, so that each would get only some of its items; "
                "make it on the ranks, inside the function"
            ) from error
        return value


def _name(one: Any) -> str:
    return str(type(one).__name__)


_NEVER_COPIED = (ModuleType, FunctionType, type, property, staticmethod, classmethod)
_LOCKS: Mapping[type, Any] = {
    type(threading.Lock()): lambda _: (threading.Lock, ()),
    type(threading.RLock()): lambda _: (threading.RLock, ()),
}
_ATOMS = (ModuleType, object, io.TextIOWrapper, io.BufferedReader, io.BufferedWriter, io.FileIO)


@contextmanager
def _shared_by_ranks() -> Iterator[None]:
    """Let ``copy.deepcopy`` return modules, files and bare objects themselves, and a new lock for a lock."""
    reducers: dict[type, Any] = {**dict.fromkeys(_ATOMS, _name), **_LOCKS}  # a string means: the object itself
    before = {kind: copyreg.dispatch_table.get(kind) for kind in reducers}
    copyreg.dispatch_table.update(reducers)
    try:
        yield
    finally:
        for kind, reducer in before.items():
            if reducer is None:
                del copyreg.dispatch_table[kind]
            else:
                copyreg.dispatch_table[kind] = reducer
