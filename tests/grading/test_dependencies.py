"""Tests that the graders' distribution declares every distribution that its code imports."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from mlsys_labkit._frontends.cli import main

OWN = {"mlsys_grading", "mlsys_labkit"}
LABS_BRING = {"torch", "triton"}  # in the build that fits the machine; the verbs that need torch name it in their error


def imported(source: str) -> Iterator[str]:
    """Yield the top-level names that a file imports, by statement or through ``need``, which takes strings."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]
        elif (
            isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("need", "need_library")
        ):
            names = [each.value for each in node.args if isinstance(each, ast.Constant)]
            names = names[:1] if node.func.id == "need_library" else names  # the second argument is a distribution
            yield from (str(name).partition(".")[0] for name in names)


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", re.match(r"[\w.-]+", name)[0]).lower()  # type: ignore[index]


def declared(root: Path, *extras: str) -> set[str]:
    """Return the distributions that the graders declare, and those of the kit with ``extras``."""
    own, kit = (
        tomllib.loads((root / path).read_text())["project"] for path in ("grading/pyproject.toml", "pyproject.toml")
    )
    lines = own["dependencies"] + [line for extra in own["optional-dependencies"].values() for line in extra]
    lines += kit["dependencies"] + [line for extra in extras for line in kit["optional-dependencies"][extra]]
    return {normal(line) for line in lines}


@pytest.mark.places  # only where the Hub is installed is it known which distributions bring its modules
def test_distribution_declares_what_it_imports(root: Path) -> None:
    known = declared(root, "widgets")
    providers = packages_distributions()
    missing: dict[str, list[str]] = {}
    for path in sorted((root / "grading" / "mlsys_grading").rglob("*.py")):
        for name in set(imported(path.read_text())) - OWN - LABS_BRING - sys.stdlib_module_names:
            if not {normal(each) for each in providers.get(name, [name])} & known:
                missing.setdefault(name, []).append(str(path.relative_to(root)))
    assert not missing


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import a.b, c", ["a", "c"]),
        ("def f():\n    from a.b import c", ["a"]),
        ("from . import a", []),
        ("need('a', 'b')\nneed_library('c.d', 'e')", ["a", "b", "c"]),
    ],
)
def test_imports_are_found_wherever_they_stand(source: str, found: list[str]) -> None:
    assert list(imported(source)) == found


def test_grading_without_torch_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert main(["grade", "--all", "--course", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "torch" in said
    assert len(said.splitlines()) == 1
