"""Packages that load their public names from a stub."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

from mlsys_labkit._base.lazy import attach
from mlsys_labkit.errors import MissingExtraError
from tests.conftest import ROOT

STUBS = sorted((ROOT / "mlsys_labkit").rglob("__init__.pyi"))

STUB = """
from fractions import (
    Fraction as Fraction,
    Decimal as Exact,
)
from os import path as path, sep as sep  # noqa: F401
from {broken} import thing as thing

__version__: str
Ratio = Fraction
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return a package whose stub has names on one line and on several, renamed, repeated, or of a missing library."""
    module = ModuleType("lazy_package")
    monkeypatch.setitem(sys.modules, "lazy_package", module)
    (tmp_path / "__init__.pyi").write_text(STUB.format(broken="no_such_library.part"))
    load, names, public = attach("lazy_package", str(tmp_path / "__init__.py"), extra="torch")
    vars(module).update(__getattr__=load, __dir__=names, __all__=public)
    return module


def test_attach_lists_the_names_of_the_stub(package: ModuleType) -> None:
    assert dir(package) == ["Exact", "Fraction", "Ratio", "path", "sep", "thing"] == package.__all__


def test_attach_loads_names_and_modules(package: ModuleType) -> None:
    import decimal
    import fractions
    import os

    assert package.Fraction is package.Ratio is fractions.Fraction
    assert package.Exact is decimal.Decimal
    assert package.path is os.path


def test_attach_keeps_a_loaded_name(package: ModuleType) -> None:
    assert "sep" not in vars(package)
    assert package.sep
    assert "sep" in vars(package)


def test_attach_refuses_an_unknown_name(package: ModuleType) -> None:
    with pytest.raises(AttributeError, match="module 'lazy_package' has no attribute 'nonsense'"):
        package.nonsense  # noqa: B018


def test_attach_names_the_extra_of_a_missing_library(package: ModuleType) -> None:
    with pytest.raises(MissingExtraError, match=r"no_such_library is not installed.*mlsys-labkit\[torch\]"):
        package.thing  # noqa: B018


@pytest.mark.parametrize("stub", STUBS, ids=lambda stub: stub.parent.name)
def test_every_name_of_a_stub_loads(stub: Path) -> None:
    package = importlib.import_module(".".join(stub.parent.relative_to(ROOT).parts))
    assert package.__all__
    for name in package.__all__:
        assert getattr(package, name) is not None
