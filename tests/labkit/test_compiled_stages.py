"""The view of a compiler's stages: right by brute force, the same in JavaScript, small, and led by mouse and keys."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from mlsys_labkit import widgets
from mlsys_labkit.errors import LabkitError
from mlsys_labkit.widgets.compiled_stages import BUDGET, WIDEST, model
from tests.labkit import twins
from tests.labkit.test_widgets_browser import Open, says, show  # noqa: F401
from tests.triton import sample_compiled

SOURCE = {"stages": Path(model.__file__).with_name("model.js")}
RUNS: list[list[Any]] = [
    [],
    [[[], ["module {"], 0]],
    [[[0], ["a", "b"], 0], [[], ["c"], 0], [[1, 0], ["d"], 7], [[2], [], 3]],
]


def stages(**options: Any) -> Any:
    return widgets.compiled_stages(sample_compiled.compiled(), **options)


def test_the_models_agree() -> None:
    calls: list[twins.Call] = []
    for runs in RUNS:
        calls += [("stages", name, [runs, i]) for name in ("lit", "amount", "origin") for i in range(8)]
    twins.compare({"stages": model}, calls, twins.in_node(SOURCE, calls))


@given(
    st.lists(st.tuples(st.sets(st.integers(0, 3)), st.lists(st.text("ab", max_size=9), min_size=1)), max_size=9),
    st.integers(0, 60),
)
def test_folding_loses_no_line_from_the_counts_and_no_run(parts: list[Any], budget: int) -> None:
    runs = [[sorted(sources), texts, 0] for sources, texts in parts]
    folded = model.folded(runs, budget)
    assert [(run[0], len(run[1]) + run[2]) for run in folded] == [(run[0], len(run[1])) for run in runs]
    size = sum(len(text) for run in folded for text in run[1])
    assert size <= budget or all(len(run[1]) == 1 for run in folded)
    for source in range(4):
        rows = [run[0] for run in folded for _ in range(len(run[1]) + (run[2] > 0))]
        assert model.lit(folded, source) == [at for at, where in enumerate(rows) if source in where]
        assert model.amount(folded, source) == sum(len(texts) for sources, texts in parts if source in sources)


def test_what_is_shown_is_small_and_without_debug_information() -> None:
    widget = stages()
    ttir, _, llir, ptx = widget.stages
    assert [text for run in ttir["runs"] for text in run[1]] == [
        "%a = tt.load %x",
        "%b = arith.divf %a, %two",
        "tt.store %x, %b",
    ]
    assert [text for run in llir["runs"] for text in run[1]] == ["%1 = load", "%2 = fdiv", "store"]
    assert ptx["total"] == sample_compiled.MULTIPLICATIONS + 2
    texts = [text for run in ptx["runs"] for text in run[1]]
    assert sum(map(len, texts)) <= BUDGET
    assert max(map(len, texts)) <= WIDEST
    assert model.amount(ptx["runs"], 3) == sample_compiled.MULTIPLICATIONS + 1
    assert len(json.dumps(widget.stages)) < 5 * BUDGET


def test_lines_are_numbered_as_the_student_sees_them() -> None:
    widget = stages(line=13)
    assert [number for number, _ in widget.code] == [10, 11, 12, 13, 4, 5]
    assert widget.line == 3
    assert stages().line == 3  # the first line that all four stages have
    with pytest.raises(LabkitError, match="line 99 is not in the kernel"):
        stages(line=99)
    with pytest.raises(LabkitError, match="show is one of all, TTIR"):
        stages(show="SASS")
    with pytest.raises(LabkitError, match="expected what compile_for"):
        widgets.compiled_stages("kernel")


@pytest.mark.browser
def test_a_line_is_lit_in_every_stage_by_mouse_and_keys(show: Open) -> None:  # noqa: F811
    page = show(stages().html(), width=1200)
    lit = page.locator(".lit")
    assert says(page) == "Line 13: 2 lines of TTIR, 2 lines of TTGIR, 2 lines of LLVM IR, 501 lines of PTX."
    page.locator(".lk-row").nth(1).click()
    assert lit.all_inner_texts() == ["%a = tt.load %x", "%a = tt.load %x", "%1 = load"]
    page.keyboard.press("ArrowDown")
    assert "nothing is made of it" in says(page)
    assert lit.count() == 0
    page.keyboard.press("End")
    assert page.evaluate("document.activeElement.textContent") == "5    return v / 2"
    assert page.locator(".lk-row[tabindex='0']").count() == 1
    assert lit.nth(0).inner_text() == "%b = arith.divf %a, %two"
    page.locator(".lk-text").first.get_by_text("tt.load").click()
    assert says(page).startswith("Line 11:")
    page.get_by_label("Show").select_option("PTX")
    assert page.locator(".lk-pane:visible").count() == 1
    page.locator(".lk-row").nth(3).click()
    box, last = (page.locator(where).last.bounding_box() for where in (".lk-text:visible", ".lit:visible"))
    assert last["height"] > 0
    assert page.locator(".lk-more.lit:visible").inner_text().startswith("… ")
    assert box["height"] > 300


@pytest.mark.browser
def test_lit_lines_are_in_sight_after_the_view_was_taken_from_the_page(show: Open) -> None:  # noqa: F811
    page = show(stages().html(), width=1200)
    page.add_style_tag(content=".lk .lk-text > code { line-height: 150px !important }")  # the sample has few lines
    page.locator(".lk-row").first.click()
    page.locator(".lk-row").nth(3).click()
    scrolled = "() => document.querySelector('.lk-text').scrollTop"
    there = page.evaluate(scrolled)
    assert there > 0
    page.evaluate(
        """async () => {
            const view = document.querySelector(".lk-stages"), parent = view.parentElement;
            view.remove();
            await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
            parent.append(view);
        }"""
    )
    page.wait_for_function(f"({scrolled})() === {there}")
