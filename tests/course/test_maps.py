"""The two maps: ways against a count by sums, levels that agree with their reasons, twins, a browser."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from mlsys_labkit import widgets
from mlsys_labkit.errors import LabkitError
from mlsys_labkit.widgets.accelerator_map import model as accelerators
from mlsys_labkit.widgets.accelerator_map.kinds import CHANGES, KINDS, TAKES
from mlsys_labkit.widgets.compiler_map import model as compilers
from mlsys_labkit.widgets.compiler_map.graph import COLUMNS, EDGES
from tests.conftest import settle
from tests.labkit import twins

NODES = [name for _, names in COLUMNS for name in names]
LEVELS = [[level for level, _ in levels] for _, _, levels in KINDS]


def count(start: str, end: str) -> int:
    """Count the paths from ``start`` to ``end`` in a graph without cycles: the sum over the next nodes."""
    return 1 if start == end else sum(count(target, end) for source, target in EDGES if source == start)


@pytest.mark.parametrize("machine", COLUMNS[-1][1])
@pytest.mark.parametrize("framework", COLUMNS[0][1])
def test_every_path_is_found_once(framework: str, machine: str) -> None:
    found = compilers.ways(EDGES, framework, machine)
    assert len(found) == count(framework, machine) == len({tuple(way) for way in found})
    assert all(pair in EDGES for way in found for pair in pairwise(way))
    assert [len(way) for way in found] == sorted(len(way) for way in found)


def test_every_map_node_has_an_edge_to_the_right() -> None:
    ends = {name for edge in EDGES for name in edge}
    assert ends == set(NODES)
    place = {name: at for at, (_, names) in enumerate(COLUMNS) for name in names}
    assert all(place[a] < place[b] for a, b in EDGES if b != "ONNX file"), "translators go from left to right"
    assert count("JAX", "FPGA") == 0
    assert count("JAX", "TPU") == 1


def test_every_level_is_defined() -> None:
    assert all(len(levels) == len(CHANGES) for _, _, levels in KINDS)
    assert {level for row in LEVELS for level in row} <= set(range(len(TAKES)))
    assert len(accelerators.SCALE_SECONDS) == len(TAKES)


def test_python_and_javascript_agree() -> None:
    sources = {
        "ways": Path(compilers.__file__).with_name("model.js"),
        "map": Path(accelerators.__file__).with_name("model.js"),
    }
    calls: list[twins.Call] = [
        *(
            ("ways", "ways", [[list(edge) for edge in EDGES], start, end])
            for start in COLUMNS[0][1]
            for end in COLUMNS[-1][1]
        ),
        *(("map", "order", [LEVELS, change]) for change in range(len(CHANGES))),
    ]
    for call, theirs in zip(calls, twins.in_node(sources, calls), strict=True):
        assert twins.in_python({"ways": compilers, "map": accelerators}, call) == theirs, call


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: widgets.compiler_map("Theano"), "the map leads from PyTorch, JAX, ONNX file"),
        (lambda: widgets.accelerator_map("weather"), "no change 'weather'; choose among another branch"),
    ],
)
def test_node_not_on_the_map_is_an_error_message(make: Any, said: str) -> None:
    with pytest.raises(LabkitError, match=re.escape(said)):
        make()


@pytest.mark.browser
def test_a_translator_is_chosen_by_keyboard_and_a_change_reorders(browser: Any) -> None:
    page = browser.new_page(viewport={"width": 900, "height": 900})
    page.set_content(f"<main>{widgets.compiler_map().html()}{widgets.accelerator_map().html()}</main>")
    settle(page)
    ways = page.locator(".lk-compilers .lk-ways li")
    everything = ways.count()
    node = page.get_by_role("button", name="only ways through Triton")
    node.focus()
    page.keyboard.press("Enter")
    assert 0 < ways.count() < everything
    assert all("Triton" in text for text in ways.all_text_contents())
    page.get_by_label("What changes").select_option(label="a new number format")
    assert "on CPU; 8 of 10 need a new chip" in page.locator(".lk-accelerators .lk-says").inner_text()
    page.close()
