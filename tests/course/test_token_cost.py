"""Annuities and hours by hand, the twin in JavaScript, and the picture in a browser."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from mlsys_labkit import widgets
from mlsys_labkit.errors import LabkitError
from mlsys_labkit.widgets.token_cost import model
from tests.conftest import settle
from tests.labkit import twins

SOURCES = {"cost": Path(model.__file__).with_name("model.js")}
PLAIN = {
    "price": 8766.0 * 4,
    "years": 4.0,
    "interest": 0.0,
    "utilisation": 0.5,
    "watts": 1000.0,
    "pue": 1.5,
    "usd_per_kwh": 0.1,
    "staff": 0.0,
    "grams_per_kwh": 400.0,
    "tokens_per_second": 1000.0,
}
BUSINESSES = [
    PLAIN,
    PLAIN | {"interest": 0.12, "utilisation": 1.0, "staff": 900.0},
    PLAIN | {"utilisation": 0.05, "years": 7.0},
]
CALLS: list[twins.Call] = [
    *(("cost", name, [each]) for each in BUSINESSES for name in ("hour", "million", "energy", "carbon")),
    *(("cost", "payment", [1000.0, years, interest]) for years in (1, 5) for interest in (0.0, 0.1)),
]


def test_python_and_javascript_agree() -> None:
    for call, theirs in zip(CALLS, twins.in_node(SOURCES, CALLS), strict=True):
        assert twins.in_python({"cost": model}, call) == pytest.approx(theirs, rel=1e-12), call


def test_cost_of_an_hour_equals_hand_calculation() -> None:
    # A dollar an hour of a year, half of the hours sold: two dollars. A busy hour takes 1.5 kWh, an idle one 0.45.
    paid = model.hour(PLAIN)
    assert paid == pytest.approx({"machine": 2.0, "interest": 0.0, "power": 0.195, "people": 0.0})
    assert model.million(PLAIN) == pytest.approx(2.195 / 3.6)
    assert model.energy(PLAIN) == pytest.approx(1.95 / 3.6)
    assert model.carbon(PLAIN) == pytest.approx(400 * 1.95 / 3.6)


@given(st.floats(1e3, 1e6), st.integers(1, 10), st.floats(0.001, 0.3))
def test_equal_payments_repay_the_price_and_its_interest(price: float, years: int, interest: float) -> None:
    owed, yearly = price, model.payment(price, years, interest)
    for _ in range(years):
        owed = owed * (1 + interest) - yearly
    assert owed == pytest.approx(0, abs=1e-6 * price)


@pytest.mark.parametrize("given", [{"utilisation": 0.0}, {"years": 20}, {"rent": 0}, {"price": float("nan")}])
def test_values_out_of_range_are_error_messages(given: dict[str, Any]) -> None:
    with pytest.raises(LabkitError, match=re.escape(next(iter(given)))):
        widgets.token_cost(**given)


@pytest.mark.browser
def test_empty_hours_turn_a_margin_into_a_loss(browser: Any) -> None:
    page = browser.new_page(viewport={"width": 900, "height": 900})
    page.set_content(f"<main>{widgets.token_cost().html()}</main>")
    settle(page)
    says = page.locator(".lk-says")
    assert "a margin of" in says.inner_text()
    page.get_by_role("slider", name="Hours that are sold").focus()
    page.keyboard.press("Home")
    assert "a loss of" in says.inner_text()
    page.close()
