"""Importing the package needs numpy alone and next to no time."""

from __future__ import annotations

import importlib

import pytest

import mlsys_labkit as lk
from tests.conftest import python

NUMPY_ONLY = """
import sys, sysconfig
class OnlyNumpy:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top in sys.stdlib_module_names or top in ("numpy", "mlsys_labkit") or top.startswith("_"):
            return None
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, OnlyNumpy())
import mlsys_labkit as lk
"""


def test_import_needs_numpy_alone() -> None:
    done = python(
        NUMPY_ONLY + "lk.detect(); lk.checks.expect_close(1.0, 1.0); lk.bench(lambda: None, seconds=0.01); lk.errors"
    )
    assert done.returncode == 0, done.stderr


def test_import_loads_nothing_heavy() -> None:
    loaded = set(python("import mlsys_labkit, sys; print(*sys.modules)").stdout.split())
    assert not loaded & {"torch", "plotly", "anywidget", "IPython", "triton", "importlib.metadata", "argparse"}
    assert "numpy" not in loaded, "numpy is needed, yet not until something counts"


@pytest.mark.parametrize("name", lk.__all__)
def test_every_public_name_loads(name: str) -> None:
    assert getattr(lk, name) is not None


def test_missing_extra_is_one_line_that_names_it() -> None:
    done = python(NUMPY_ONLY + "from mlsys_labkit.errors import require\nrequire('plotly.graph_objects', 'widgets')")
    last = done.stderr.strip().splitlines()[-1]
    assert last.endswith(
        "plotly.graph_objects is not installed; run: pip install 'mlsys-labkit[widgets]', then restart the kernel"
    )


def test_unknown_attribute_raises() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        lk.nonsense  # noqa: B018


def test_names_are_functions_even_after_their_rooms_were_imported() -> None:
    importlib.import_module("mlsys_labkit.widgets")
    assert callable(lk.show)
