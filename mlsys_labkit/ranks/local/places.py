"""The places where a Python program keeps what a process has once: globals, attributes of classes, closures, defaults.

Each place can be read into a dictionary and written from one, so that a rank's values can be taken out while another
rank runs.
"""

from __future__ import annotations

import gc
import logging
import os
import sys
import warnings
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import is_
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
        self._belongs = belongs
        self._libraries: dict[str, Any] = {}
        self._seen: dict[str, Any] = {}
        self._own: dict[str, Any] = {}

    def read(self) -> dict[str, Any]:
        if self._seen != sys.modules:
            known = self._libraries
            other = {name: one for name, one in list(sys.modules.items()) if known.get(name, _ABSENT) is not one}
            self._own = {name: one for name, one in other.items() if self._belongs(one)}
            known.update((name, one) for name, one in other.items() if name not in self._own)
            self._seen = dict(sys.modules)
        return self._own

    def write(self, values: Mapping[str, Any]) -> None:
        now = self.read()
        if now == values:
            return
        for name in now:
            if name not in values:
                del sys.modules[name]
                if name in self._libraries:  # the program had put a module of its own in its place
                    sys.modules[name] = self._libraries[name]
        sys.modules.update(values)


@dataclass(frozen=True)
class Exchanged:
    """Functions and classes of a library's module that a program may exchange for its own; new names are left alone."""

    held: dict[str, Any]
    names: tuple[str, ...]

    def read(self) -> dict[str, Any]:
        return {name: self.held[name] for name in self.names if name in self.held}

    def write(self, values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            if self.held.get(name, _ABSENT) is not value:
                self.held[name] = value


@dataclass(frozen=True)
class Contents:
    """The items of a dictionary, a list, a set or a deque of a library."""

    held: Any

    def read(self) -> dict[str, Any]:
        return {"": self.held.copy()}

    def write(self, values: Mapping[str, Any]) -> None:
        now, wanted = self._compared(self.held), self._compared(values[""])
        if len(now) == len(wanted) and all(map(is_, now, wanted)):  # == may be a tensor
            return
        self.held.clear()
        (self.held.extend if isinstance(self.held, list | deque) else self.held.update)(values[""])

    @staticmethod
    def _compared(held: Any) -> list[Any]:
        return [*held, *held.values()] if isinstance(held, dict) else [*held]


class Loggers:
    """The levels and handlers of Python's loggers, but torch's, which are hundreds."""

    def read(self) -> dict[str, Any]:
        return {name: {key: _as_kept(vars(one)[key]) for key in _OF_A_LOGGER} for name, one in _loggers()}

    def write(self, values: Mapping[str, Any]) -> None:
        changed = False
        for name, one in _loggers():
            for key, new in values.get(name, _NEW_LOGGER).items():
                if _as_kept(vars(one)[key]) != new:
                    vars(one)[key] = [*new] if isinstance(new, tuple) else new
                    changed = True
        if changed:
            logging.root.manager._clear_cache()  # type: ignore[attr-defined]


_OF_A_LOGGER = ("level", "handlers", "filters", "propagate", "disabled")
_NEW_LOGGER = {"level": logging.NOTSET, "handlers": (), "filters": (), "propagate": True, "disabled": False}


def _as_kept(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _loggers() -> list[tuple[str, logging.Logger]]:
    known = list(logging.root.manager.loggerDict.items())
    found = [(name, one) for name, one in known if name[:6] != "torch." and isinstance(one, logging.Logger)]
    return [("", logging.root), *found]


_BACKENDS = ("cuda", "mkldnn")


def _matmul_precision() -> str | tuple[str, ...]:
    """Return torch's precision of float32 products; one for each backend where they have been set apart."""
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:  # "mix of the legacy and new APIs": fp32_precision is set
        return tuple(torch._C._get_fp32_precision_getter(backend, "matmul") for backend in _BACKENDS)


def _set_matmul_precision(value: str | tuple[str, ...]) -> None:
    if isinstance(value, str):
        torch.set_float32_matmul_precision(value)
    else:
        for backend, each in zip(_BACKENDS, value, strict=True):
            torch._C._set_fp32_precision_setter(backend, "matmul", each)


# What torch keeps once for the process: how it is read and set.
_SETTINGS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "dtype": (torch.get_default_dtype, torch.set_default_dtype),
    "precision": (_matmul_precision, _set_matmul_precision),
    "deterministic": (torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode),
}


class Process:
    """State that Python and the system keep once: environment, command line, folder, main module, streams, settings."""

    def read(self) -> dict[str, Any]:
        return {
            "environment": dict(_environment),
            "arguments": [*sys.argv],
            "path": [*sys.path],
            "main": sys.modules["__main__"],
            "folder": _folder(),
            "streams": (sys.stdout, sys.stderr),
            "collector": gc.isenabled(),
            "warnings": [*warnings.filters],
            **{name: read() for name, (read, _) in _SETTINGS.items()},
        }

    def write(self, values: Mapping[str, Any]) -> None:
        if _environment != values["environment"]:
            for name in _environment.keys() - values["environment"].keys():
                del os.environ[os.fsdecode(name)]
            os.environ.update((os.fsdecode(name), os.fsdecode(value)) for name, value in values["environment"].items())
        if values["folder"] and _folder() != values["folder"]:
            os.chdir(values["folder"])
        for name, (read, set_) in _SETTINGS.items():
            if read() != values[name]:
                set_(values[name])
        sys.stdout, sys.stderr = values["streams"]
        if gc.isenabled() != values["collector"]:
            (gc.enable if values["collector"] else gc.disable)()
        if warnings.filters != values["warnings"]:
            warnings.filters[:] = values["warnings"]  # type: ignore[index]
            warnings._filters_mutated()  # type: ignore[attr-defined]
        sys.argv[:], sys.path[:] = values["arguments"], values["path"]
        sys.modules["__main__"] = values["main"]


def _folder() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:  # another process has removed it
        return ""
