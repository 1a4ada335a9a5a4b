"""The training planner's sums beside the kit's full planner, the twin in JavaScript, and the picture in a browser."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from mlsys_labkit import ranks, widgets
from mlsys_labkit.errors import LabkitError
from mlsys_labkit.widgets.training_planner import model, plan_of
from tests.conftest import settle
from tests.labkit import twins
from tests.labkit.test_widgets import state

SOURCES = {"training": Path(model.__file__).with_name("model.js")}
LAYOUTS: list[tuple[str, dict[str, Any]]] = [
    ("llama-3-70b", {"data": 8, "tensor": 8, "zero": 1}),
    ("llama-3-70b", {"data": 4, "tensor": 4, "pipeline": 4, "zero": 1}),
    ("llama-3-70b", {"data": 64, "tensor": 1, "zero": 3}),
    ("llama-3-70b", {"data": 64, "tensor": 1, "zero": 3, "recompute": True}),
    ("llama-2-7b", {"data": 8, "tensor": 1, "zero": 2}),
    ("llama-3-8b", {"data": 64, "tensor": 1, "zero": 3}),
    ("llama-3-405b", {"data": 16, "tensor": 8, "pipeline": 2, "zero": 1}),
    ("gpt-3-175b", {"data": 16, "tensor": 8, "pipeline": 8, "zero": 1}),
    ("gpt-2", {"data": 1, "tensor": 1, "zero": 0}),
]


def plan(name: str, layout: dict[str, Any]) -> dict[str, float]:
    made = widgets.training_planner(name, **layout)
    return plan_of(state(made))


@pytest.mark.parametrize(("name", "layout"), LAYOUTS)
def test_memory_and_time_are_the_full_planners_to_a_few_percent(name: str, layout: dict[str, Any]) -> None:
    ours = plan(name, layout)
    cuts = {key: value for key, value in layout.items() if key != "recompute"}
    full = ranks.plan(
        ranks.Transformer.named(name),
        ranks.Cluster.named("dgx-h100", gpus=int(ours["data"] * ours["tensor"] * ours["pipeline"])),
        ranks.Layout(
            **cuts,
            recompute="full" if layout.get("recompute") else "none",
            global_batch=int(32 * ours["data"]),
            sequence=4096,
        ),
    )
    used = sum(size for part, size in model.memory(ours).items() if part != "free")
    assert used == pytest.approx(full.peak_bytes, rel=0.06)
    assert sum(model.seconds(ours).values()) == pytest.approx(full.step_seconds, rel=0.08)
    assert model.utilisation(ours) == pytest.approx(full.mfu, rel=0.08)


def test_pipeline_bubble_equals_the_papers_formula() -> None:
    times = model.seconds(plan("llama-3-70b", {"data": 1, "tensor": 1, "pipeline": 4, "micro_batches": 8}))
    assert times["bubble"] / (times["compute"] + times["bubble"]) == pytest.approx(3 / 11)


def test_zero_stage_divides_its_states_among_ranks() -> None:
    state = [plan("llama-2-7b", {"data": 64, "tensor": 1, "zero": stage}) for stage in range(4)]
    parts = ("parameters", "gradients", "optimizer")
    held = [sum(model.memory(each)[part] for part in parts) / each["parameters"] for each in state]
    assert held == pytest.approx([16, 4 + 12 / 64, 2 + 14 / 64, 16 / 64])


def test_python_and_javascript_agree() -> None:
    plans = [plan(name, layout) for name, layout in LAYOUTS]
    numbers = [{key: value for key, value in each.items() if not isinstance(value, str)} for each in plans]
    calls: list[twins.Call] = [
        ("training", name, [each])
        for each in numbers
        for name in ("memory", "seconds", "utilisation", "tokensPerSecond")
    ]
    for call, theirs in zip(calls, twins.in_node(SOURCES, calls), strict=True):
        assert twins.in_python({"training": model}, call) == pytest.approx(theirs, rel=1e-12), call


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [
        ("gpt-9", {}, "no model 'gpt-9'"),
        ("mixtral-8x7b", {}, "has experts"),
        ("llama-3-8b", {"data": 3}, "data is a power of two"),
        ("llama-3-8b", {"zero": 4}, "zero is 0 to 3"),
        ("llama-3-8b", {"tokens": 5}, "tokens is between"),
    ],
)
def test_impossible_input_is_an_error_message(name: str, given: dict[str, Any], said: str) -> None:
    with pytest.raises(LabkitError, match=re.escape(said)):
        widgets.training_planner(name, **given)


@pytest.mark.browser
def test_zero_three_chosen_by_keyboard_makes_the_model_fit(browser: Any) -> None:
    page = browser.new_page(viewport={"width": 900, "height": 900})
    page.set_content(f"<main>{widgets.training_planner('llama-3-8b', data=64, tensor=1, zero=0).html()}</main>")
    settle(page)
    says = page.locator(".lk-says")
    assert "it does not fit" in says.inner_text()
    page.get_by_role("slider", name="ZeRO stage").focus()
    page.keyboard.press("End")
    assert "it fits" in says.inner_text()
    page.get_by_label("Recompute activations").check()
    assert "the largest loss: recompute" in says.inner_text()
    page.close()
