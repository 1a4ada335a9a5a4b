"""The hardware explorer: trends against numpy, the twin in JavaScript, and the picture in a browser."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from mlsys_labkit import widgets
from mlsys_labkit.errors import LabkitError
from mlsys_labkit.specs import tables
from mlsys_labkit.widgets.hardware_explorer import model
from tests.conftest import settle
from tests.labkit import twins

SOURCES = {"hardware": Path(model.__file__).with_name("model.js")}
CLOUDS = [
    ([2016, 2018, 2020], [1.0, 2.0, 4.0]),
    ([2010, 2010], [1.0, 2.0]),
    ([2001, 2007, 2022, 2023], [9e9, 3e12, 1e15, 4e13]),
]
CALLS: list[twins.Call] = [
    *(("hardware", "trend", [x, y, is_year]) for x, y in CLOUDS for is_year in (True, False)),
    *(("hardware", "doubling", [slope]) for slope in (0.5, -0.25, 0.0, 1e-4)),
    *(("hardware", "roof", [1e15, 3.35e12, intensity]) for intensity in (0.1, 298.5, 1e4)),
]
FEW = ["a100-sxm-80gb", "h100-sxm", "epyc-9654"]


def test_python_and_javascript_agree() -> None:
    for call, theirs in zip(CALLS, twins.in_node(SOURCES, CALLS), strict=True):
        ours = twins.in_python({"hardware": model}, call)
        assert (ours is None and theirs is None) or np.allclose(ours, theirs, rtol=1e-12), call


@given(st.lists(st.tuples(st.integers(1, 60), st.floats(1, 1e12)), min_size=2, max_size=12), st.booleans())
def test_trend_equals_numpys_fit(points: list[tuple[int, float]], is_year: bool) -> None:
    x, y = [a + (1990 if is_year else 0) for a, _ in points], [b for _, b in points]
    found = model.trend(x, y, is_year)
    if len(set(x)) == 1:
        assert found is None
        return
    places = np.array(x, float) if is_year else np.log2(x)
    slope, height = np.polyfit(places - places.mean(), np.log2(y), 1)
    assert found is not None
    assert np.allclose(found, [slope, places.mean(), height], atol=1e-6)


def test_the_kits_datasheets_are_a_table() -> None:
    table = tables.of_devices("bfloat16", FEW)
    assert table.columns == {"year": "year", "peak": "FLOP/s", "bandwidth": "B/s", "memory": "B", "power": "W"}
    assert table["NVIDIA H100 SXM5 80 GB"].bandwidth.value == 3.35e12
    assert table["AMD EPYC 9654, one socket"].peak is None, "this processor has no datasheet peak in bfloat16"
    assert all(value.source.url.startswith("https://") for row in table for value in row.values.values())


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"x": "weight"}, "no numbers called 'weight'; choose among year, peak, bandwidth, memory, power"),
        ({"first": "H100"}, "no row 'H100'"),
        ({"columns": ["peak"], "x": "year"}, "no numbers called 'year'; choose among peak"),
    ],
)
def test_missing_entry_is_an_error_message(given: dict[str, Any], said: str) -> None:
    with pytest.raises(LabkitError, match=re.escape(said)):
        widgets.hardware_explorer(tables.of_devices("float16", FEW), **given)


@pytest.mark.browser
def test_a_click_compares_and_a_list_changes_the_axes(browser: Any) -> None:
    page = browser.new_page(viewport={"width": 900, "height": 900})
    made = widgets.hardware_explorer(tables.of_devices("float16", ["a100-sxm-80gb", "h100-sxm", "b200"]))
    page.set_content(f"<main>{made.html()}</main>")
    settle(page)
    says = page.locator(".lk-says")
    assert says.inner_text().startswith("NVIDIA B200 SXM 180 GB has 2.27 times the peak, 2.39 times the bandwidth")
    page.locator("circle.dot").first.click()
    assert "of NVIDIA A100 SXM4 80 GB" in says.inner_text()
    assert "153 and 295 FLOP/B" in says.inner_text()
    page.get_by_label("Up").select_option("power")
    assert "power doubles every" in page.locator(".lk-note").first.inner_text()
    page.close()
