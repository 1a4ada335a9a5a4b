"""Test cells that rest on claims of the student's process: found by the probes that they call, and limited.

A probe without a witness, and the address of an array, are reported by the process that runs the student's code, and
that code can report anything. Such cells are tagged ``claim``; a lab has at most five points of them.
"""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from mlsys_grading.build.finding import BuildFinding, at, in_file
from mlsys_grading.build.python import calls, dotted, imported_names, parse
from mlsys_grading.lab import Lab
from mlsys_labkit._base import probes

CLAIM = "claim"
MOST_POINTS = 5.0
_TOLD = {  # claims that are no probes: addresses sent with an answer, and a rank's report on itself
    "mlsys_labkit.checks.expect_shares_memory": "where an array's memory lies",
    "mlsys_labkit.checks.expect_copy": "where an array's memory lies",
    "mlsys_labkit.checks.run_ranks(memory=True)": "what a rank says of its memory",
}
_HOMES = ("mlsys_labkit.checks", "mlsys_labkit.memory", "mlsys_labkit.work.count", "mlsys_labkit.access")


def claims_of(lab: Lab) -> Mapping[str, tuple[str, ...]]:
    """Return the claims that each test cell rests on, by its name; cells without claims are left out."""
    trees = {cell.index: parse(cell.source) for cell in lab.cells if cell.kind == "code"}
    names = imported_names(trees.values())
    helpers = {
        node.name: node
        for cell in lab.cells
        if cell.is_locked and cell.index in trees
        for node in trees[cell.index].body
        if isinstance(node, ast.FunctionDef)
    }
    found = {}
    for cell in (cell for cell in lab.cells if cell.is_test):
        if claims := set(map(_claim, _called(trees[cell.index], names, helpers, set()))) - {""}:
            found[cell.grade_id] = tuple(sorted(claims))
    return found


def check_claims(lab: Lab) -> Iterator[BuildFinding]:
    """Find cells whose tag disagrees with their probes, and labs with too many points on claims."""
    found = claims_of(lab)
    for cell in (cell for cell in lab.cells if cell.is_test):
        told = ", ".join(found.get(cell.grade_id, ()))
        if told and CLAIM not in cell.tags:
            problem = f"{cell.grade_id} rests on a claim of the student's process: {told}"
            yield at(lab, cell, 0, CLAIM, problem, 'write tags=["claim"] into the cell header, or test results')
        if not told and CLAIM in cell.tags:
            yield at(lab, cell, 0, CLAIM, f"{cell.grade_id} rests on no claim", "take the tag away")
    points = {cell.grade_id: cell.points for cell in lab.cells if cell.grade_id in found}
    if sum(points.values()) > MOST_POINTS:
        told = ", ".join(f"{name} {worth:g}" for name, worth in points.items())
        problem = f"{sum(points.values()):g} points rest on claims of the student's process ({told})"
        instead = f"move points to tests of results until {MOST_POINTS:g} are left"
        yield in_file(lab, lab.path, 1, CLAIM, problem, instead)


def _called(tree: ast.AST, names: Mapping[str, str], helpers: Mapping[str, ast.AST], been: set[str]) -> Iterator[str]:
    """Yield the full names of called functions, also within the lab's own locked helpers."""
    for call in calls(tree):
        name = dotted(call.func, names)
        given = [each.value for each in call.keywords if each.arg == "memory"]
        if any(isinstance(each, ast.Constant) and each.value for each in given):
            yield f"{name}(memory=True)"
        yield name
        if name in helpers and name not in been:
            been.add(name)
            yield from _called(helpers[name], names, helpers, been)


@cache
def _claim(name: str) -> str:
    """Name the claim that a function of the kit relies on; empty if it relies on none."""
    if name in _TOLD:
        return _TOLD[name]
    function = _function(name)
    if function is None:
        return ""
    known = {each.rpartition(".")[2]: each for each in probes.known()}
    own = f"{function.__module__}.{function.__qualname__}"
    code = getattr(function, "__code__", None)
    called = code.co_names if code else ()
    asked = [own] if own in known.values() else [known[each] for each in called if each in known]
    return ", ".join(each.rpartition(".")[2] for each in asked if not probes.witness_of(each))


def _function(name: str) -> Any:
    """Return the function that a dotted name of the kit stands for, or None."""
    for home in _HOMES:
        importlib.import_module(home)  # importing a module registers its probes
    if not name.startswith("mlsys_labkit."):
        return None
    value: Any = importlib.import_module("mlsys_labkit")
    for part in name.split(".")[1:]:
        value = getattr(value, part, None)
    return value if callable(value) and hasattr(value, "__qualname__") else None
