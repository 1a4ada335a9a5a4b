"""The serving planner: sums that can be done by hand, the twin in JavaScript, and the picture in a browser."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from mlsys_labkit import widgets
from mlsys_labkit.errors import LabkitError
from mlsys_labkit.widgets.serving_planner import model, setup_of
from tests.conftest import settle
from tests.labkit import twins
from tests.labkit.test_widgets import state

SOURCES = {"serving": Path(model.__file__).with_name("model.js")}
# Round numbers: 10 G parameters, 1 PFLOP/s, 2 TB/s, 100 GB, 1 kB a token.
ROUND = {
    "parameters": 10e9,
    "active": 10e9,
    "layers": 50,
    "cache": 1000.0,
    "cuts": 16,
    "peak": 1e15,
    "bandwidth": 2e12,
    "memory": 100e9,
    "gpus": 1,
    "bits": 16,
    "users": 1,
    "context": 1000,
    "efficiency": 1.0,
    "price": 3.6,
}
SETUPS = [
    ROUND,
    ROUND | {"users": 777, "gpus": 8, "efficiency": 0.45},
    ROUND | {"users": 30, "gpus": 72, "cuts": 8},
    ROUND | {"active": 2e9, "users": 7, "bits": 4, "context": 131072},
]
CALLS: list[twins.Call] = [
    call
    for setup in SETUPS
    for call in (
        *(
            ("serving", name, [setup])
            for name in ("memory", "decodeSeconds", "prefillSeconds", "usdPerMillion", "mostUsers")
        ),
        *(("serving", "touched", [setup, tokens]) for tokens in (1, 3, 500)),
    )
]


def test_python_and_javascript_agree() -> None:
    for call, theirs in zip(CALLS, twins.in_node(SOURCES, CALLS), strict=True):
        ours = twins.in_python({"serving": model}, call)
        assert ours == pytest.approx(theirs, rel=1e-12), call


def test_one_user_waits_for_the_weights() -> None:
    assert model.decode_seconds(ROUND) == pytest.approx((20e9 + 1e6) / 2e12)
    assert model.memory(ROUND) == pytest.approx({"weights": 20e9, "cache": 1e6, "free": 90e9 - 20e9 - 1e6})
    # 3.6 USD an hour is 0.1 cent a second; a token takes 10 ms, a million 10,000 s.
    assert model.usd_per_million(ROUND) == pytest.approx(10.0, rel=1e-3)


def test_many_users_wait_for_the_arithmetic_and_a_prompt_does_too() -> None:
    many = ROUND | {"users": 2000, "context": 1}
    assert model.decode_seconds(many) == pytest.approx(2 * 10e9 * 2000 / 1e15)
    assert model.prefill_seconds(ROUND | {"context": 5000}) == pytest.approx(2 * 10e9 * 5000 / 1e15)


def test_cutting_a_model_divides_time_and_adds_two_hops_a_layer() -> None:
    assert model.decode_seconds(ROUND | {"gpus": 4}) == pytest.approx((20e9 + 1e6) / 8e12 + 2 * 50 * 5e-6)


def test_gpus_beyond_the_key_value_heads_hold_copies_of_the_cache() -> None:
    cut = ROUND | {"cuts": 8, "users": 8}
    held = [model.memory(cut | {"gpus": gpus})["cache"] for gpus in (1, 8, 32)]
    assert held == [8e6, 1e6, 1e6]
    assert model.most_users(cut | {"gpus": 32}) == int((32 * 90e9 - 20e9) / 4 // 1e6)
    read = (model.decode_seconds(cut | {"gpus": 32}) - 2 * 50 * 5e-6) * 32 * 2e12
    assert read == pytest.approx(20e9 + 4 * 8e6)


def test_latent_attention_caches_one_short_vector_and_shares_out_users() -> None:
    """DeepSeek-AI, arXiv:2505.09343, table 1: 70.272 KB a token for DeepSeek-V3, 327.680 for Qwen2.5 72B (as Llama)."""
    setups = {name: setup_of(state(widgets.serving_planner(name, "gb200", gpus=72)))
              for name in ("deepseek-v3", "llama-3-70b")}  # fmt: skip
    assert {name: setup["cache"] for name, setup in setups.items()} == {"deepseek-v3": 70_272, "llama-3-70b": 327_680}
    held = {name: model.memory(setup)["cache"] for name, setup in setups.items()}
    assert held["deepseek-v3"] == pytest.approx(32 * 4096 * 70_272 / 72)
    assert held["llama-3-70b"] == 32 * 4096 * 327_680 / 8  # eight key-value heads on 72 GPUs


@given(st.integers(1, 1000), st.floats(0.01, 1))
def test_experts_are_read_as_often_as_chance_has_it(tokens: int, share: float) -> None:
    found = model.touched(ROUND | {"active": share * 10e9}, tokens)
    assert share * 10e9 * (1 - 1e-9) <= found <= 10e9
    assert model.touched(ROUND | {"active": share * 10e9}, 1) == pytest.approx(share * 10e9)


def test_four_experts_of_eight_are_read_by_simulation() -> None:
    rng = np.random.default_rng(0)
    seen = (
        np.mean([len(set(rng.integers(0, 8, 5))) for _ in range(20_000)]) / 8
    )  # five tokens, one expert of eight each
    assert model.touched(ROUND | {"active": 10e9 / 8}, 5) / 10e9 == pytest.approx(seen, rel=0.01)


@given(st.integers(1, 16), st.integers(256, 100_000), st.sampled_from([16, 8, 4]))
def test_reported_number_of_users_fits_and_one_more_does_not(gpus: int, context: int, bits: int) -> None:
    setup = ROUND | {"gpus": gpus, "context": context, "bits": bits}
    most = model.most_users(setup)
    assert model.memory(setup | {"users": most})["free"] >= -1
    assert model.memory(setup | {"users": most + 1})["free"] < 1


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"model_name": "gpt-9"}, "no model 'gpt-9'"),
        ({"gpus": 3}, "gpus is one of"),
        ({"gpus": 128}, "72"),
        ({"users": 0}, "users is 1 to 1024"),
        ({"device": "epyc-9654"}, "choose another device"),
    ],
)
def test_impossible_input_is_an_error_message(given: dict[str, Any], said: str) -> None:
    with pytest.raises(LabkitError, match=re.escape(said)):
        widgets.serving_planner(**given)


@pytest.mark.browser
def test_fewer_bits_make_the_model_fit(browser: Any) -> None:
    page = browser.new_page(viewport={"width": 900, "height": 900})
    page.set_content(f"<main>{widgets.serving_planner('llama-3-70b', gpus=1, users=8).html()}</main>")
    settle(page)
    assert page.locator(".lk-says").inner_text().startswith("It does not fit")
    bits = page.get_by_role("slider", name="Bits a weight")
    bits.focus()
    page.keyboard.press("End")
    assert "together" in page.locator(".lk-says").inner_text()
    page.close()
