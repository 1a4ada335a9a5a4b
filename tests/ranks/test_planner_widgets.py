"""Transformer sizer and memory bars: JavaScript against the planner, fragments, and a real browser."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mlsys_labkit import widgets
from mlsys_labkit.errors import LabkitError
from mlsys_labkit.planner import MODELS, Transformer
from mlsys_labkit.widgets.memory_bars import model as bars
from mlsys_labkit.widgets.transformer_sizer import model as sizer
from tests.labkit import test_widgets as general, test_widgets_browser as in_browser, twins
from tests.labkit.test_widgets_browser import Open, says, show, value

__all__ = ["show"]  # a fixture

ROOM = Path(sizer.__file__).parent.parent
SOURCES = {"sizer": ROOM / "transformer_sizer/model.js", "bars": ROOM / "memory_bars/model.js"}
MODULES = {"sizer": sizer, "bars": bars}
OWN = Transformer(vocabulary=1000, width=96, layers=6, heads=12, kv_heads=4, head_width=10, hidden=200, tied=True)
MAKERS: dict[str, Callable[[], Any]] = {
    "sizer": lambda: widgets.transformer_sizer(),
    "bars": lambda: widgets.memory_bars(),
    "stages": lambda: widgets.memory_bars("llama-2-70b", data=8, tensor=8, pipeline=8, zero=1),
}
every = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())


def calls() -> list[twins.Call]:
    out: list[twins.Call] = []
    for one in (*MODELS.values(), OWN, OWN.resized(experts=4, active_experts=3)):
        m = sizer.shape(one)
        out += [("sizer", name, [m]) for name in ("ruleParameters", "parts", "activeParameters", "kvBytes")]
        out += [("bars", name, [m]) for name in ("tensorSizes", "pipelineSizes")]
        for batch, length in ((1, 1), (3, 128), (8, 8192)):
            out += [("sizer", "activations", [m, batch, length, flash]) for flash in (False, True)]
            out += [("sizer", "ruleActivations", [m, batch, length]), ("sizer", "trainingFlops", [m, length])]
        for tensor in bars.tensor_sizes(m)[:3]:
            for pipeline in bars.pipeline_sizes(m)[:3]:
                for zero in range(4):
                    for data, micro, many, recompute in ((1, 1, 2, "none"), (8, 2, 1, "none"), (64, 4, 16, "full")):
                        cut = {"data": data, "tensor": tensor, "pipeline": pipeline, "zero": zero, "micro_batch": micro,
                               "micro_batches": many, "sequence": 1024, "recompute": recompute}  # fmt: skip
                        out += [("bars", "stage", [m, cut, index]) for index in {0, pipeline - 1}]
                        out.append(("bars", "fullest", [m, cut]))
    return out


def test_the_models_are_the_planners_in_javascript_too() -> None:
    asked = calls()
    assert len(asked) > 2000
    twins.compare(MODULES, asked, twins.in_node(SOURCES, asked))


def test_rules_of_thumb_as_written() -> None:
    m = sizer.shape(MODELS["gpt-2"])
    assert sizer.rule_parameters(m) == 12 * 12 * 768**2 + 50_257 * 768
    assert sizer.rule_activations(m, 2, 1024) == 9 * 2 * 1024 * 768 + 2 * 2 * 12 * 1024**2
    assert sum(sizer.parts(m)) == 124_439_808


@every
def test_fragments_keep_the_house_rules(make: Callable[[], Any]) -> None:
    general.test_bundle_has_the_live_view_the_fragment_and_text(make)
    general.test_fragment_is_small_and_asks_for_nothing_from_the_network(make)
    general.test_without_scripts_a_table_with_caption_and_headers_is_left(make)


def test_static_tables_hold_the_numbers() -> None:
    sizes = re.sub(r"\s+", " ", general.Page(widgets.transformer_sizer("gpt-2", 1, 1024).html()).text)
    assert "parameters, 12Nd² + Vd 124 M 124 M -0.7 %" in sizes
    assert "cache a token, 4Nd bytes 36.9 kB 36.9 kB +0.0 %" in sizes
    zero = re.sub(r"\s+", " ", general.Page(widgets.memory_bars("llama-2-7b", data=64).html()).text)
    for row in ("ZeRO-0 13.5 GB 13.5 GB 80.9 GB", "ZeRO-1 13.5 GB 13.5 GB 1.26 GB", "ZeRO-3 211 MB 211 MB 1.26 GB"):
        assert row in zero  # 2, 2 and 12 bytes of 6.738 billion, over 64 ranks


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: widgets.transformer_sizer("llama-9"), "there are gpt-2"),
        (lambda: widgets.transformer_sizer(42), "planner.Transformer, got int"),
        (lambda: widgets.transformer_sizer("gpt-2", batch=0), "from 1 up"),
        (lambda: widgets.memory_bars(42), "planner.Transformer, got int"),
        (lambda: widgets.memory_bars(device="xeon-8480"), "device is one of"),
        (lambda: widgets.memory_bars("deepseek-v3"), "deepseek-v3 has parts that this figure leaves out"),
        (lambda: widgets.transformer_sizer("olmo-2-7b"), "olmo-2-7b has parts that this figure leaves out"),
        (lambda: widgets.memory_bars(tensor=5), "heads = 32 is not divisible by tensor = 5"),
        (lambda: widgets.memory_bars(zero=4), "zero is one of"),
        (lambda: widgets.memory_bars(recompute="some"), "recompute none or full"),
        (lambda: widgets.memory_bars(micro_batches=1), "micro_batches from 2"),
    ],
)
def test_a_wrong_argument_is_one_line(make: Callable[[], Any], says: str) -> None:
    with pytest.raises(LabkitError, match=says) as caught:
        make()
    assert "\n" not in str(caught.value)


# --- in a browser ----------------------------------------------------------------------------------------------------


@pytest.mark.browser
@every
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_draws_keeps_its_keys_and_is_accessible(show: Open, make: Callable[[], Any], scheme: str) -> None:
    in_browser.draws_keeps_its_keys_and_is_accessible(show, make, scheme)


@pytest.mark.browser
def test_sizes_follow_the_keys_and_the_presets(show: Open) -> None:
    page = show(widgets.transformer_sizer("gpt-2", 1, 1024).html())
    assert value(page, "parameters, 12Nd² + Vd", 1) == "124 M"
    page.locator("select").select_option("llama-3-405b")
    assert value(page, "parameters, 12Nd² + Vd", 1) == "406 G"
    assert value(page, "cache a token, 4Nd bytes", 0) == "8.26 MB"  # 16 times the grouped cache
    assert value(page, "cache a token, 4Nd bytes", 1) == "516 kB"
    assert value(page, "cache a token, 4Nd bytes", 2) == "+1500.0 %"
    page.get_by_role("slider", name="N, layers").press("Home")
    assert page.locator("select").input_value() == ""
    assert value(page, "cache a token, 4Nd bytes", 1) == "4.1 kB"
    before = value(page, "elements a layer saves, 9BLd + 2BhL²", 0)
    page.get_by_role("slider", name="L, tokens of one").press("ArrowRight")
    assert value(page, "elements a layer saves, 9BLd + 2BhL²", 0) != before
    heads = page.get_by_role("slider", name="h, heads")
    heads.press("ArrowLeft")
    assert heads.get_attribute("aria-valuetext") == "96"
    shared = page.get_by_role("slider", name="Key-value heads")
    assert shared.get_attribute("aria-valuetext") == "8"
    shared.press("End")
    assert shared.get_attribute("aria-valuetext") == "96"


@pytest.mark.browser
def test_memory_bars_shrink_with_zero_stage(show: Open) -> None:
    page = show(widgets.memory_bars("llama-2-7b", data=8, recompute="full").html())
    assert "31 GB more than the 79 GB" in says(page)
    zero = page.get_by_role("slider", name="ZeRO stage")
    zero.press("End")
    assert "fits" in says(page)
    assert [value(page, "fits", column) for column in range(4)] == ["no", "yes", "yes", "yes"]
    assert value(page, "parameters", 3) == "1.68 GB"
    page.locator("select").nth(2).select_option("stages")
    stages = page.get_by_role("slider", name="Pipeline stages")
    stages.press("ArrowRight")
    stages.press("ArrowRight")
    assert page.locator("thead th").all_inner_texts() == ["ZeRO-3, stage", "0", "1", "2", "3"]
    page.locator("select").first.select_option("llama-3-405b")
    assert stages.get_attribute("aria-valuetext") == "3"  # 126 layers have no four equal stages
    assert page.locator("rect.q0").count() == 3
