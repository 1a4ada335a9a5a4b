"""The places where a Python program keeps what a process has once: globals, attributes of classes, closures, defaults.

Each place can be read into a dictionary and written from one, so that a rank's values can be taken out while another
rank runs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import CellType, FunctionType, ModuleType
from typing import Any, Protocol

import torch

_ABSENT = object()
_environment: dict[bytes, bytes] = os.environ._data  # type: ignore[attr-defined]  # os.environ decodes each when read


class Place(Protocol):
    """A set of names with their values."""

    def read(self) -> dict[str, Any]: ...

    def write(self, values: Mapping[str, Any]) -> None:
        """Make these the values. What is the same object already is left alone."""


@dataclass(frozen=True)
class Variables:
    """The globals of a module or of executed code, or the attributes of a function, by their dictionary."""

    held: dict[str, Any]

    def read(self) -> dict[str, Any]:
        return dict(self.held)

    def write(self, values: Mapping[str, Any]) -> None:
        for name in [name for name in self.held if name not in values]:
            del self.held[name]
        for name, value in values.items():
            if self.held.get(name, _ABSENT) is not value:
                self.held[name] = value


@dataclass(frozen=True)
class Attributes:
    """The attributes of a class."""

    held: type

    def read(self) -> dict[str, Any]:
        return dict(vars(self.held))

    def write(self, values: Mapping[str, Any]) -> None:
        now = vars(self.held)
        for name in [name for name in now if name not in values]:
            type.__delattr__(self.held, name)
        for name, value in values.items():
            if now.get(name, _ABSENT) is not value:
                type.__setattr__(self.held, name, value)


@dataclass(frozen=True)
class Defaults:
    """The default arguments of a function, by the number of the argument or its name."""

    held: FunctionType

    def read(self) -> dict[str, Any]:
        by_place = {str(place): value for place, value in enumerate(self.held.__defaults__ or ())}
        return by_place | (self.held.__kwdefaults__ or {})

    def write(self, values: Mapping[str, Any]) -> None:
        count = len(self.held.__defaults__ or ())
        by_place = tuple(values[str(place)] for place in range(count))
        if any(new is not old for new, old in zip(by_place, self.held.__defaults__ or (), strict=True)):
            self.held.__defaults__ = by_place
        by_name = self.held.__kwdefaults__ or {}
        by_name.update((name, values[name]) for name in by_name)


@dataclass(frozen=True)
class Closure:
    """A variable of an enclosing function; it may have no value yet."""

    held: CellType

    def read(self) -> dict[str, Any]:
        try:
            return {"": self.held.cell_contents}
        except ValueError:
            return {}

    def write(self, values: Mapping[str, Any]) -> None:
        if values:
            self.held.cell_contents = values[""]
        elif self.read():
            del self.held.cell_contents


class Modules:
    """The program's modules that a rank has imported: each rank imports its own."""

    def __init__(self, belongs: Callable[[ModuleType], bool]) -> None:
        self._before = set(sys.modules)
        self._belongs = belongs
        self._count = len(sys.modules)
        self._written: dict[str, Any] = {}

    def read(self) -> dict[str, Any]:
        if len(sys.modules) == self._count:
            return self._written
        new = {name: module for name, module in list(sys.modules.items()) if name not in self._before}
        return {name: module for name, module in new.items() if self._belongs(module)}

    def write(self, values: Mapping[str, Any]) -> None:
        for name in self.read():
            del sys.modules[name]
        sys.modules.update(values)
        self._count, self._written = len(sys.modules), dict(values)


class Process:
    """State that Python and the system keep once: environment, command line, folder, main module, default dtype."""

    def read(self) -> dict[str, Any]:
        return {
            "environment": dict(_environment),
            "arguments": [*sys.argv],
            "path": [*sys.path],
            "main": sys.modules["__main__"],
            "folder": _folder(),
            "dtype": torch.get_default_dtype(),
        }

    def write(self, values: Mapping[str, Any]) -> None:
        if _environment != values["environment"]:
            for name in _environment.keys() - values["environment"].keys():
                del os.environ[os.fsdecode(name)]
            os.environ.update((os.fsdecode(name), os.fsdecode(value)) for name, value in values["environment"].items())
        if _folder() != values["folder"]:
            os.chdir(values["folder"])
        if torch.get_default_dtype() != values["dtype"]:
            torch.set_default_dtype(values["dtype"])
        sys.argv[:], sys.path[:] = values["arguments"], values["path"]
        sys.modules["__main__"] = values["main"]


def _folder() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:  # another process has removed it
        return ""
