"""Every example in a docstring of the kit runs and prints what it says, and every public function has one."""

from __future__ import annotations

import doctest
import importlib
import inspect
import re
from collections.abc import Iterator

import pytest

import mlsys_labkit as lk
from tests.conftest import ROOT

MODULES = sorted(
    ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for file in (ROOT / "mlsys_labkit").rglob("*.py")
)


def public() -> Iterator[tuple[str, object]]:
    """Yield the public names of the package and of its public modules."""
    for name in lk.__all__:
        thing = getattr(lk, name)
        if not inspect.ismodule(thing):
            yield name, thing
        for inner in getattr(thing, "__all__", ()) if inspect.ismodule(thing) else ():
            yield f"{name}.{inner}", getattr(thing, inner)


def examples(thing: object) -> list[doctest.Example]:
    return [one for found in doctest.DocTestFinder().find(thing, "it") for one in found.examples]


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name: str) -> None:
    module = importlib.import_module(name)
    source = inspect.getsource(module)
    failed, ran = doctest.testmod(module)
    assert failed == 0
    assert (ran > 0) == bool(re.search(r"^\s*>>> ", source, re.MULTILINE)), "no example is passed over"
    assert "+SKIP" not in source, "an example that never runs rots"


def test_every_public_function_has_an_example() -> None:
    bare = {name for name, thing in public() if inspect.isfunction(thing) and not examples(thing)}
    assert bare == set()


def test_a_wrong_example_would_be_found() -> None:
    runner = doctest.DocTestRunner(verbose=False)
    wrong = doctest.DocTestParser().get_doctest(">>> 1 + 1\n3\n", {}, "wrong", None, 0)
    assert runner.run(wrong, out=lambda text: None).failed == 1
