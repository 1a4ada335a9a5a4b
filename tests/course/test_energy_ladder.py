"""The energy ladder: words by hand, the twin in JavaScript, and the picture in a browser."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from mlsys_labkit import widgets
from mlsys_labkit.errors import LabkitError
from mlsys_labkit.specs import tables
from mlsys_labkit.widgets.energy_ladder import model
from tests.conftest import ROOT, settle
from tests.labkit import twins

SOURCES = {"energy": Path(model.__file__).with_name("model.js")}
CALLS: list[twins.Call] = [
    *(("energy", "word", [1.3e-9, 64, bits]) for bits in (8, 32)),
    *(("energy", "operation", [3.7e-12, 640e-12, uses]) for uses in (1, 173, 10_000)),
    ("energy", "balance", [3.7e-12, 640e-12]),
]


def ladder() -> tables.Table:
    return tables.load(ROOT / "course/data/energy.toml")


def test_python_and_javascript_agree() -> None:
    for call, theirs in zip(CALLS, twins.in_node(SOURCES, CALLS), strict=True):
        assert twins.in_python({"energy": model}, call) == pytest.approx(theirs, rel=1e-12), call


@given(st.floats(1e-14, 1e-9), st.floats(1e-13, 1e-6))
def test_at_the_balance_both_parts_are_equal(arithmetic: float, move: float) -> None:
    parts = model.operation(arithmetic, move, model.balance(arithmetic, move))
    assert parts["arithmetic"] == pytest.approx(parts["movement"])


def test_a_word_of_dram_is_worth_a_hundred_multiplications() -> None:
    table = ladder()
    dram = max((row for row in table if "DRAM" in row.name), key=lambda row: row.energy.value / row.bits.value)
    multiply = table["multiply, FP32"]
    assert 100 < model.word(dram.energy.value, dram.bits.value, 32) / multiply.energy.value < 1000


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"operation": "DRAM"}, "has no 'DRAM' there"),
        ({"uses": 0}, "uses is 1 to 10,000"),
        ({"place": "the moon"}, "has no 'the moon'"),
    ],
)
def test_missing_entry_is_an_error_message(given: dict[str, Any], said: str) -> None:
    with pytest.raises(LabkitError, match=re.escape(said)):
        widgets.energy_ladder(ladder(), **given)


def test_table_of_another_kind_is_an_error_message() -> None:
    with pytest.raises(LabkitError, match="needs energy, bits and kind"):
        widgets.energy_ladder(tables.of_devices("float16"))


@pytest.mark.browser
def test_reuse_makes_arithmetic_the_larger_part(browser: Any) -> None:
    page = browser.new_page(viewport={"width": 900, "height": 900})
    page.set_content(f"<main>{widgets.energy_ladder(ladder(), 'multiply, FP32').html()}</main>")
    settle(page)

    def movement() -> int:
        return int(re.search(r": (\d+) % of", page.locator(".lk-says").inner_text()).group(1))

    assert movement() > 90
    page.get_by_role("slider", name="Uses of each word").focus()
    page.keyboard.press("End")
    assert movement() < 50
    page.close()
