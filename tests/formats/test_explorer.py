"""Tests of the format explorer's models: equal in Python and JavaScript, and correct by a search of all numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlsys_labkit import widgets
from mlsys_labkit.errors import LabkitError
from mlsys_labkit.formats import FORMATS
from mlsys_labkit.widgets import base
from mlsys_labkit.widgets.number_formats import SHOWN, model
from tests.conftest import settle
from tests.labkit import twins

SOURCES = {"formats": Path(base.__file__).parent / "number_formats/model.js"}
SMALL = [name for name, made in SHOWN.items() if made["bits"] <= 8]


def tried(name: str) -> list[float]:
    """Return numbers of the format, between them and beyond them, with both signs where the format has two."""
    numbers = np.sort([number for number in FORMATS[name].values().tolist() if math.isfinite(number)])  # type: ignore[union-attr]
    middles = (numbers[1:] + numbers[:-1]) / 2
    near = np.nextafter(middles, np.inf)
    every = [*numbers, *middles, *near, numbers[-1] * 1.5, 1e30]
    if SHOWN[name].get("signed", True):
        every += [numbers[0] * 1.5, -1e30]
    return [float(value) for value in every if name != "e8m0" or value > 0]


def calls() -> Iterator[twins.Call]:
    rng = np.random.default_rng(3)
    for name, made in SHOWN.items():
        count = len(made["numbers"]) if "numbers" in made else 1 << made["bits"]
        codes = range(count) if count <= 256 else rng.integers(0, count, 60).tolist()
        yield from (("formats", "decode", [made, code]) for code in codes if math.isfinite(model.decode(made, code)))
        yield "formats", "largest", [made]
        values = tried(name)[::3] if name in SMALL else [0.1, -3.25, 1e-9, 65519.9, 1e30, 0.0, 1.0]
        for value in values:
            if name == "e8m0" and value <= 0:
                continue
            yield "formats", "nearest", [made, value]
            yield "formats", "neighbours", [made, value]


def test_python_and_javascript_models_agree() -> None:
    every = list(calls())
    assert len(every) > 1500
    twins.compare({"formats": model}, every, twins.in_node(SOURCES, every))


@pytest.mark.parametrize("name", SMALL)
def test_nearest_and_neighbours_equal_a_search(name: str) -> None:
    numbers = {number for number in FORMATS[name].values().tolist() if math.isfinite(number)}  # type: ignore[union-attr]
    for value in tried(name):
        stored = model.decode(SHOWN[name], model.nearest(SHOWN[name], value))
        assert abs(stored - value) == min(abs(number - value) for number in numbers)
        below, above = model.neighbours(SHOWN[name], value)
        assert below == max((number for number in numbers if number < value), default=stored)
        assert above == min((number for number in numbers if number > value), default=stored)


def test_explorer_refuses_unknown_formats_and_nan() -> None:
    with pytest.raises(LabkitError, match="format is one of fp32, tf32"):
        widgets.number_formats(1.0, "fp7")
    with pytest.raises(LabkitError, match="finite number, got nan"):
        widgets.number_formats(math.nan)


@pytest.mark.browser
def test_explorer_number_follows_typing_dragging_keys_and_bits(browser: Any) -> None:
    page = browser.new_page(viewport={"width": 900, "height": 900})
    page.set_content(f"<!doctype html><main>{widgets.number_formats(0.3, 'fp4_e2m1').html()}</main>")
    settle(page)
    says = page.locator(".lk-says")
    assert "fp4_e2m1 stores 0.5" in says.inner_text()
    page.get_by_role("textbox", name="Number").fill("2.4")
    page.get_by_role("textbox", name="Number").press("Enter")
    assert "lies between 2 and 3; fp4_e2m1 stores 2" in says.inner_text()
    mark = page.get_by_role("slider", name="Number")
    mark.focus()
    page.keyboard.press("ArrowRight")
    assert says.inner_text().startswith("3 is a number of fp4_e2m1")
    page.get_by_role("button", name="sign bit 0: 0").click()
    assert says.inner_text().startswith("-3 is a number of fp4_e2m1")
    box = page.locator(".lk-line-box").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 58)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.9, box["y"] + 58, steps=5)
    page.mouse.up()
    moved = float(page.get_by_role("textbox", name="Number").input_value())
    assert moved > -3
    page.mouse.move(box["x"] + 5, box["y"] + 58)
    assert float(page.get_by_role("textbox", name="Number").input_value()) == moved, "let go is let go"
    page.close()
