"""Packages that import their public names on first use, from one list: the package's ``__init__.pyi``.

    __getattr__, __dir__, __all__ = attach(__name__, __file__)

The stub is what editors and mypy read, so each public name stands in one place. Design: SPEC 1 of scientific-python
(``lazy_loader.attach_stub``), written here because importing the kit must need numpy alone.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mlsys_labkit.errors import require

_IMPORT = re.compile(r"^from ([\w.]+) import (?:\(([^)]*)\)|([^#\n]*))", re.MULTILINE)
_ALIAS = re.compile(r"^(\w+) = (\w+)$", re.MULTILINE)


def attach(
    package: str, init_file: str, extra: str | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` of ``package``, whose stub lies beside ``init_file``.

    The stub has lines ``from package.module import name as name``, and ``earlier = name`` for a second name of the same
    thing. Where a module needs a library that is not installed, the error names ``extra``, the optional extra of
    mlsys-labkit that brings it.
    """
    homes = _read_stub(Path(init_file).with_suffix(".pyi").read_text(encoding="utf-8"))
    names = sorted(homes)

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            value = _load(*homes[name], package)
        except ModuleNotFoundError as error:
            if extra and error.name and not error.name.startswith("mlsys_labkit"):
                require(error.name, extra)
            raise
        setattr(sys.modules[package], name, value)
        return value

    return load, lambda: names, names


def _read_stub(text: str) -> dict[str, tuple[str, str]]:
    """Return for each public name the module that it comes from and its name there."""
    homes = {}
    for module, several, one in _IMPORT.findall(text):
        for item in filter(None, map(str.strip, (several or one).split(","))):
            source, _, name = item.partition(" as ")
            homes[name] = (module, source)
    for alias, name in _ALIAS.findall(text):
        homes[alias] = homes[name]
    return homes


def _load(module: str, name: str, package: str) -> Any:
    home = importlib.import_module(module)
    if name in vars(home):
        return vars(home)[name]
    if module != package and hasattr(home, "__getattr__"):
        return getattr(home, name)
    return importlib.import_module(f"{module}.{name}")
