"""Scaling laws: the published optimum, minima found by search, the twin in JavaScript, and the picture in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from mlsys_labkit import widgets
from mlsys_labkit.errors import LabkitError
from mlsys_labkit.widgets.scaling_laws import model
from tests.conftest import settle, unfold
from tests.labkit import twins

LAW = model.CHINCHILLA
SOURCES = {"scaling": Path(model.__file__).with_name("model.js")}
CALLS: list[twins.Call] = [
    *(("scaling", "loss", [LAW, n, d]) for n in (1e7, 7e10) for d in (1e9, 1.4e12)),
    *(("scaling", "bestParameters", [LAW, flops]) for flops in (1e18, 5.76e23, 1e27)),
    ("scaling", "lifetime", [8e9, 15e12, 1e14]),
    *(("scaling", "tokensFor", [LAW, 8e9, target]) for target in (1.8, 2.2)),
]


def test_python_and_javascript_agree() -> None:
    for call, theirs in zip(CALLS, twins.in_node(SOURCES, CALLS), strict=True):
        ours = twins.in_python({"scaling": model}, call)
        assert (ours is None and theirs is None) or ours == pytest.approx(theirs, rel=1e-9), call


def test_the_papers_own_prediction() -> None:
    # Table A3 of arXiv:2203.15556: approach 3 spends Gopher's 5.76e23 FLOPs on 40 B parameters.
    assert model.best_parameters(LAW, 5.76e23) / 1e9 == pytest.approx(40, rel=0.25)


@given(st.floats(18, 27))
def test_no_other_size_does_better(exponent: float) -> None:
    flops = 10**exponent
    best = model.best_parameters(LAW, flops)
    sizes = best * np.geomspace(0.01, 100, 401)
    losses = [model.loss(LAW, n, flops / 6 / n) for n in sizes]
    assert abs(int(np.argmin(losses)) - 200) <= 1


@given(st.floats(7, 13), st.floats(0.01, 2))
def test_the_tokens_for_a_loss_reach_it(exponent: float, above: float) -> None:
    n = 10**exponent
    least = LAW["floor"] + LAW["a"] / n ** LAW["alpha"]
    tokens = model.tokens_for(LAW, n, least + above)
    assert tokens is not None
    assert model.loss(LAW, n, tokens) == pytest.approx(least + above)
    assert model.tokens_for(LAW, n, least - 0.01) is None


@pytest.mark.parametrize("given", [{"flops": 1.0}, {"parameters": 1e3}, {"served": -1}])
def test_values_out_of_range_are_error_messages(given: dict[str, Any]) -> None:
    with pytest.raises(LabkitError, match=next(iter(given))):
        widgets.scaling_laws(**given)


@pytest.mark.browser
def test_optimal_model_is_smaller_when_it_serves(browser: Any) -> None:
    page = browser.new_page(viewport={"width": 900, "height": 900})
    page.set_content(f"<main>{widgets.scaling_laws(1e24).html()}</main>")
    settle(page)
    unfold(page)

    def tokens_a_parameter() -> float:
        said = page.locator("tbody tr").nth(1).locator("td").nth(2).text_content()
        return float(said.replace(" k", "e3"))

    before = tokens_a_parameter()
    page.get_by_role("slider", name="Tokens served").focus()
    page.keyboard.press("End")
    assert tokens_a_parameter() > 2 * before
    page.close()
