"""The line fit's model: right by numpy's least squares, and the same in Python and in JavaScript."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from mlsys_labkit import widgets
from mlsys_labkit.errors import LabkitError
from mlsys_labkit.widgets.line_fit import model
from tests.conftest import settle
from tests.labkit import twins

SOURCES = {"fit": Path(model.__file__).with_name("model.js")}
CLOUDS = [
    ([0.0, 1.0], [1.0, 5.0]),
    ([-2.0, 0.5, 3.0, 9.0], [4.0, 0.0, -1.0, -7.5]),
    ([1e3, 1e3 + 1, 1e3 + 5], [0.1, 0.2, 0.0]),
]
CALLS: list[twins.Call] = [
    call
    for x, y in CLOUDS
    for call in (
        ("fit", "best", [x, y]),
        ("fit", "largest_rate", [x]),
        ("fit", "level", [x, y, 2.5]),
        *(("fit", name, [x, y, slope, 1.5]) for name in ("error", "gradient") for slope in (-3.0, 0.0, 0.25)),
    )
]
numbers = st.floats(-100, 100, allow_nan=False)


def test_python_and_javascript_agree() -> None:
    for call, theirs in zip(CALLS, twins.in_node(SOURCES, CALLS), strict=True):
        ours = twins.in_python({"fit": model}, call)
        assert np.allclose(ours, theirs, rtol=1e-9, atol=1e-9), call


@given(st.lists(st.tuples(numbers, numbers), min_size=2, max_size=20))
def test_best_line_equals_numpys_fit(points: list[tuple[float, float]]) -> None:
    x, y = (list(each) for each in zip(*points, strict=True))
    if np.std(x) < 1e-3:
        return
    found = model.best(x, y)
    assert np.allclose(np.polyval(found, x), np.polyval(np.polyfit(x, y, 1), x), atol=1e-5)
    assert np.allclose(model.gradient(x, y, *found), 0, atol=1e-7 * (1 + np.abs(x).max()) * (1 + np.abs(y).max()))


@given(st.floats(0.01, 50), st.floats(-5, 5))
def test_a_ring_lies_where_the_error_is_so_much_above_the_least(above: float, shift: float) -> None:
    x, y = [0.0, 1.0, 2.5, 4.0], [1.0 + shift, -2.0, 3.0, 0.0]
    least = model.error(x, y, *model.best(x, y))
    for slope, intercept in model.level(x, y, above):
        assert np.isclose(model.error(x, y, slope, intercept) - least, above)


@pytest.mark.parametrize(("share", "arrives"), [(0.97, True), (1.03, False)])
def test_descent_converges_below_the_largest_rate_and_not_above_it(share: float, arrives: bool) -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 4, 30)
    y = (2 * x + 1 + rng.normal(size=30)).tolist()
    line, rate = np.zeros(2), share * model.largest_rate(x.tolist())
    for _ in range(3000):
        line = line - rate * np.array(model.gradient(x.tolist(), y, *line))
        if np.abs(line).max() > 1e9:
            break
    assert np.allclose(line, model.best(x.tolist(), y), atol=1e-6) == arrives


@pytest.mark.parametrize(
    ("x", "y", "said"),
    [
        ([1.0], [1.0], "2 to 200 numbers"),
        ([1.0, 2.0], [1.0], "shapes"),
        ([1.0, 2.0], [1.0, np.nan], "finite"),
        ([3.0, 3.0], [1.0, 2.0], "all x are 3"),
    ],
)
def test_bad_points_are_refused_in_words(x: Any, y: Any, said: str) -> None:
    with pytest.raises(LabkitError, match=re.escape(said)):
        widgets.line_fit(x, y)


@pytest.mark.browser
def test_dragging_walking_and_keys_move_the_line(browser: Any) -> None:
    x = np.linspace(0, 10, 12)
    page = browser.new_page()
    page.set_content(f"<main>{widgets.line_fit(x, 0.7 * x + 2).html()}</main>")
    settle(page)
    says = page.locator(".lk-says")
    before = says.inner_text()
    page.get_by_role("slider", name="Right end of the line").focus()
    page.keyboard.press("ArrowUp")
    assert says.inner_text() != before
    page.get_by_role("button", name="One step").click()
    assert "1 steps" in says.inner_text()
    box = page.locator(".lk-map").bounding_box()
    page.mouse.move(box["x"] + 20, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2, steps=4)
    page.mouse.up()
    assert "Slope 0.7, intercept 2:" in says.inner_text(), "the middle of the map is the best line"
    page.close()
