"""Verdicts of the widgets: what the views say in all states within reach of one control, compared with oracles.

An oracle never calls a JavaScript model. It is a package of the kit in Python that other tests compare with published
tables, NumPy, a closed formula, or a count by hand; its docstring says which.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from mlsys_labkit.ranks.simulation.patterns import ALGORITHMS, pattern
from mlsys_labkit.widgets.collective_animator.model import COLLECTIVES
from tests.labkit import every_widget, verdicts_hardware, verdicts_kernels, verdicts_models, verdicts_runs
from tests.labkit.verdict_numbers import Expected, Oracle, State
from tests.labkit.widget_grips import Grip, grips
from tests.labkit.widget_layout import script

WALK = script("widget_states")
PAGE = "<!doctype html><html lang=en><title>t</title><main style='width: 736px'></main>"
NO_CLAIM = {"progress_panel": "shows words that lk.progress() wrote; tests/labkit/test_progress.py compares those"}


@cache
def oracles() -> Mapping[str, Oracle]:
    """Return the oracle of each kind of widget."""
    modules = (verdicts_hardware, verdicts_kernels, verdicts_models, verdicts_runs)
    return {name: getattr(module, name) for module in modules for name in every_widget.folders() & vars(module).keys()}


def further(folder: str) -> list[dict[str, Any]]:
    """Return states that two controls or more lead to, where a formula changes or a limit is just met."""
    _, state = every_widget.by_folder()[folder]
    changes: list[dict[str, Any]] = []
    if folder == "collective_animator":
        for name in COLLECTIVES:
            for way in (way for way in ALGORITHMS[name] if way != "pairwise"):
                many = len(pattern(name, 5, way).rounds)
                changes += [
                    {"collective": name, "algorithm": way, "ranks": 5, "step": step} for step in range(many + 1)
                ]
    if folder == "pipeline_gantt":
        plain = {"bars": [], "arrows": [], "path": "", "note": "", "cursor": 370}
        sizes = [("interleaved", 2, 4, 3), ("interleaved", 4, 8, 2), ("zero_bubble", 4, 3, 1), ("zero_bubble", 3, 9, 1)]
        sizes += [(name, p, m, 1) for name in ("gpipe", "1f1b") for p, m in ((1, 1), (3, 2), (4, 9))]
        for name, p, m, v in sizes:
            cut = {"schedule": name, "stages": p, "micro_batches": m, "chunks": v}
            changes += [{**plain, **cut, "backward": backward} for backward in (1.0, 2.0, 3.0)]
    if folder == "tile_walk":  # 1,024 threads are as many as a block may have, and 48 KiB as much memory
        changes = [{"n": 1000, "tile": tile, "register": 1, "block": 0, "step": 0} for tile in (16, 32, 64)]
        changes += [{"n": 256, "tile": 64, "register": 2, "item": 8, "block": 15, "step": 3}]
    if folder == "number_formats":  # zero, a tie, and both sides of the largest numbers
        values = (0.0, -0.1, 0.28125, 6.5, 448.0, 464.0, -127.9, -65504.0, 65520.0, 1e-9, -3e38, 3.5e38)
        changes = [{"format": made["name"], "value": value} for made in state["formats"] for value in values]
    if folder == "strides":  # the stride of an axis of length 1 does not matter
        changes = [
            {"shape": [3, 1], "strides": [1, 5], "offset": 0},
            {"shape": [2, 2], "strides": [-9, 30], "offset": 9},
        ]
    return [{**state, **change} for change in changes]


def walk(page: Any, folder: str, states: Iterable[State], change: tuple[str, str] = ("", "")) -> list[dict[str, Any]]:
    """Mount states of a kind and ``further`` ones, and return what its view says after each move of one control.

    ``change`` replaces a text of the bundle, to see that the comparison finds it.
    """
    kind, _ = every_widget.by_folder()[folder]
    moved, still = [dict(state) for state in states], further(folder)
    states = [*moved, *still]
    esm = kind.esm.replace(*change) if change[0] else kind.esm
    seen = page.evaluate(WALK, [esm, kind.css, states, len(still)])
    return [{**one, "state": {**states[one["at"]], **one["changed"]}} for one in seen]


def misses(folder: str, seen: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return what a view said wrongly: its verdicts, rows of its numbers, notes, and texts of its handles."""
    moved = [one for one in grips() if one.field]  # the others move what only the view knows
    by_label = {one.label: one for one in moved if every_widget.folder_of(one.make) == folder}
    return [f"{one['control']}: {miss}" for one in seen for miss in _misses(oracles()[folder], by_label, one)]


def _misses(oracle: Oracle, by_label: Mapping[str, Grip], seen: Mapping[str, Any]) -> Iterable[str]:
    expected: Expected = oracle(seen["state"], seen)
    said = [expected.verdict, *expected.others]
    if seen["says"] != said:
        yield f"says {seen['says']}, the oracle {said}"
    rows = {row[0]: row[1:] for _, table in seen["tables"] for row in table[1:]}
    for name, cells in expected.rows.items():
        if rows.get(name, [])[: len(cells)] != list(cells):
            yield f"row {name!r} has {rows.get(name)}, the oracle {cells}"
    for note in expected.notes:
        if note not in seen["notes"]:
            yield f"notes are {seen['notes']}, the oracle has {note!r}"
    for label in expected.labels:
        if label not in seen["labels"]:
            yield f"labels are {seen['labels']}, the oracle has {label!r}"
    for label, told, now in seen["handles"]:
        text = expected.handles.get(label, "")
        if not text and label in by_label:
            text = by_label[label].expected({**seen["state"], "now": now})
        if text not in (told or ""):
            yield f"the handle {label!r} says {told!r}, the oracle {text!r}"
