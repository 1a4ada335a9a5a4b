"""Tests of the serving widgets in a page: size, offline use, mouse and keyboard, accessibility."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from importlib.resources import files
from typing import Any

import pytest

from mlsys_labkit import widgets
from mlsys_labkit.errors import LabkitError
from mlsys_labkit.serving import EngineStep, Recording, Request, Scheduled
from mlsys_labkit.widgets import base
from tests.labkit.test_widgets import LIMIT_BYTES, Page, state
from tests.labkit.test_widgets_browser import Open, says, show  # noqa: F401
from tests.serving.sample_recording import RECORDING

MAKERS: dict[str, Callable[[], Any]] = {
    "block_table": lambda: widgets.block_table(RECORDING),
    "request_timeline": lambda: widgets.request_timeline(RECORDING, ttft_seconds=3.0, tpot_seconds=1.5),
}
both = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())


def many(steps: int, blocks: int = 2, requests: int = 1) -> Recording:
    names = [f"r{number}" for number in range(requests)]
    asked = tuple(Request(name, prompt=(1,), max_new_tokens=max(1, steps)) for name in names)
    run = tuple(
        EngineStep(
            at,
            at,
            at + 1,
            tuple(Scheduled(name, "decode", 1, at) for name in names),
            finished=("gone",) if at == 1 else (),
            block_tables={names[0]: tuple(range(blocks))},
            held_tokens={names[0]: at},
        )
        for at in range(steps)
    )
    times = dict.fromkeys(names, tuple(range(1, steps + 1)))
    return Recording(asked, run, times, times, dict.fromkeys(names, "length"), block_size=16, blocks=9999)


@both
def test_page_is_small_and_loads_nothing_from_the_network(make: Callable[[], Any]) -> None:
    widget = make()
    fragment = widget.html()
    carried = json.dumps(state(widget), separators=(",", ":"))
    assert len(fragment.encode()) - len(carried.encode()) < LIMIT_BYTES
    assert set(re.findall(r"https?://[^\"'\s)]+", fragment)) <= {"http://www.w3.org/2000/svg"}
    assert not re.search(r"@import|\bfetch\(|\bsrc=|\bimport\s*\(|^import ", fragment, re.MULTILINE)
    data, _ = widget._repr_mimebundle_()
    assert set(data) == {"application/vnd.jupyter.widget-view+json", "text/html", "text/plain"}


def test_tables_hold_the_numbers_without_scripts() -> None:
    pool = re.sub(r"\s+", " ", Page(MAKERS["block_table"]().html()).text)
    assert "6 blocks of 4 tokens" in pool
    assert (
        "2 3 4 1 0 2 18.8 %" in pool
    )  # step 2: three requests, four blocks, one shared, none cached, two free, 3 of 16
    assert "a 7 0 1" in pool
    times = re.sub(r"\s+", " ", Page(MAKERS["request_timeline"]().html()).text)
    assert "Under TTFT <= 3 s and TPOT <= 1.5 s, 2 of 4 requests are served in time: goodput 0.25 requests/s." in times
    assert "c 2 s 3 s 2 s 3 misses TPOT" in times
    assert "d 7 s - - 0 not served" in times


IN_ONE_STEP = Recording(
    (Request("a", (1,)),), (EngineStep(0, 0.0, 0.1),), {"a": (7,)}, {"a": (0.1,)}, {"a": "stop"}, 4, 2
)


@both
def test_widget_without_anywidget_is_interactive_html(make: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "find_spec", lambda name: None)
    assert '<script type="module">' in make()._repr_html_()


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: widgets.block_table("run"), "expected the Recording of an engine's run, got str"),
        (lambda: widgets.request_timeline(RECORDING.steps), "expected the Recording of an engine's run, got tuple"),
        (lambda: widgets.block_table(many(0)), "the run has no step to draw"),
        (lambda: widgets.block_table(IN_ONE_STEP), "the run touched 0; let a request go on after its first step"),
        (lambda: widgets.block_table(many(2, blocks=1025)), "the run touched 1025; record fewer"),
        (lambda: widgets.request_timeline(many(0)), "no step or no request"),
        (lambda: widgets.request_timeline(many(2, requests=9000)), "do not fit a page"),
        (lambda: widgets.request_timeline(RECORDING, ttft_seconds=0), "ttft_seconds is a bound in seconds above 0"),
        (lambda: widgets.request_timeline(RECORDING, tpot_seconds=float("nan")), "tpot_seconds is a bound"),
    ],
)
def test_undrawable_recording_is_refused_in_one_line(make: Callable[[], Any], expected: str) -> None:
    with pytest.raises(LabkitError) as caught:
        make()
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


def test_long_run_is_thinned() -> None:
    run = many(3000)
    pool = state(widgets.block_table(run))
    assert (len(pool["steps"]), pool["stride"]) == (375, 8)
    assert pool["steps"][-1][0][0][1] == 2999  # the last of every eight is shown, so the end of the run is
    assert pool["events"][0] == ["gone ended"]  # and nothing that happened in between is lost
    times = state(widgets.request_timeline(run))
    assert (len(times["strips"]), times["stride"], len(times["segments"])) == (500, 6, 1)
    assert len(json.dumps(pool)) + len(json.dumps(times)) < 60_000


def test_block_table_opens_at_the_last_of_the_fullest_steps() -> None:
    assert state(widgets.block_table(many(5)))["step"] == 4


# --- in a browser ----------------------------------------------------------------------------------------------------


def chosen(page: Any, name: str) -> str:
    return str(page.get_by_role("slider", name=name).get_attribute("aria-valuetext"))


@pytest.mark.browser
@both
@pytest.mark.parametrize("width", [900, 420])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_widget_fits_its_column_and_passes_axe(
    show: Open,  # noqa: F811
    make: Callable[[], Any],
    width: int,
    scheme: str,
) -> None:
    page = show(make().html(), width=width, scheme=scheme)
    assert page.locator(".lk-static").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    for picture in page.locator("svg[role=img]").all():
        assert len(picture.get_attribute("aria-label")) > 60
    for control in page.locator("section.lk").locator("button, select, input, [tabindex]").all():
        assert control.get_attribute("data-lm-suppress-shortcuts") == "true"
    if page.locator(".lk-chip").count():
        page.locator(".lk-chip").first.click()  # the tables of a chosen request, too
    page.evaluate((files("axe_playwright_python") / "axe.min.js").read_text("utf-8"))
    found = page.evaluate("axe.run('main').then(result => result.violations)")
    assert [(one["id"], [node["html"][:120] for node in one["nodes"]]) for one in found] == []


@pytest.mark.browser
@both
def test_widget_is_readable_without_scripts(show: Open, make: Callable[[], Any]) -> None:  # noqa: F811
    assert show(make().html(), scripts=False).locator(".lk-static table").first.is_visible()


@pytest.mark.browser
def test_block_table_shows_filled_shared_and_freed_blocks(show: Open) -> None:  # noqa: F811
    page = show(MAKERS["block_table"]().html())
    step = page.get_by_role("slider", name="Step")
    assert chosen(page, "Step") == "3 of 6"  # where most blocks are in use
    assert says(page) == (
        "After step 3 of 6 (virtual time 5 s), 3 requests hold 4 of 6 blocks, 1 of them shared; 0 more are cached, "
        "18.8 % of the slots in use are unfilled."
    )
    assert page.locator(".lk-plot .lk-used").count() == 4
    assert page.locator(".lk-plot .lk-shared .lk-who").all_text_contents() == ["×2"]
    step.press("ArrowRight")
    assert "c preempted (recompute); block 0 copied to 4 before a write; a ended." in says(page)
    assert page.locator(".lk-plot .lk-cached").count() == 1
    step.press("End")
    assert page.locator(".lk-plot .lk-used").count() == 0
    assert "No request holds a block" in page.locator(".lk-table").inner_text()
    page.get_by_role("button", name="Next step").click()
    assert chosen(page, "Step") == "1 of 6"
    # Block 5 was never in use: it is left out, and the widget reports that.
    assert "2 blocks that the run never touched are left out" in page.locator(".lk-rest").inner_text()


@pytest.mark.browser
def test_block_table_tells_no_time_where_no_clock_ran(show: Open) -> None:  # noqa: F811
    run = many(3)
    still = replace(run, steps=tuple(replace(step, start_seconds=0.0, end_seconds=0.0) for step in run.steps))
    page = show(widgets.block_table(still).html())
    assert says(page).startswith("After step 3 of 3, 1 request holds 2 of 9999 blocks")


@pytest.mark.browser
def test_block_table_highlights_a_request_by_mouse_and_keys(show: Open) -> None:  # noqa: F811
    from playwright.sync_api import expect

    page = show(MAKERS["block_table"]().html())
    rows = page.locator(".lk-table tr")
    assert rows.count() == 0
    page.get_by_role("button", name="b", exact=True).focus()
    assert [row.split() for row in rows.all_inner_texts()] == [
        ["logical", "block", "#0", "#1"],
        ["physical", "block", "0", "2"],
        ["slots", "filled", "of", "4", "4", "3"],
        ["tables", "that", "hold", "it", "2", "1"],
    ]
    assert page.locator(".lk-plot .lk-used:not(.dim) .lk-who").all_text_contents() == ["#0", "#1"]
    page.keyboard.press("Enter")
    page.get_by_role("slider", name="Step").press("ArrowRight")
    assert page.locator(".lk-table caption").inner_text() == "Block table of b: 8 tokens in 2 blocks"
    assert page.get_by_role("button", name="b", exact=True).get_attribute("aria-pressed") == "true"
    page.get_by_role("slider", name="Step").press("Home")
    page.locator(".lk-plot .lk-used").first.hover()
    expect(page.locator(".lk-table caption")).to_have_text("Block table of a: 5 tokens in 2 blocks")


@pytest.mark.browser
def test_block_table_plays_unless_reduced_motion_is_set(browser: Any) -> None:
    for motion in ("no-preference", "reduce"):
        context = browser.new_context(reduced_motion=motion, offline=True)
        page = context.new_page()
        page.set_content(MAKERS["block_table"]().html())
        play = page.locator("button", has_text=re.compile("^Play$"))
        if motion == "reduce":
            assert not play.is_visible()
        else:
            play.click()
            page.wait_for_function("document.querySelector('input[type=range]').value !== '2'")
            page.get_by_role("button", name="Pause").click()
        context.close()


@pytest.mark.browser
def test_timeline_bounds_change_colours_and_goodput(show: Open) -> None:  # noqa: F811
    page = show(MAKERS["request_timeline"]().html())
    marks = page.locator(".lk-mark")
    assert marks.all_text_contents() == ["✓", "✓", "✗ TPOT", "✗ not served"]
    assert says(page).startswith(
        "2 of 4 requests (50 %) are served in time: goodput 0.25 requests/s; a: arrived at 1 s"
    )
    page.get_by_role("slider", name="TPOT at most").press("End")
    assert marks.all_text_contents() == ["✓", "✓", "✓", "✗ not served"]
    page.get_by_role("slider", name="TTFT at most").press("Home")
    assert says(page).startswith("0 of 4 requests (0 %)")
    assert page.locator(".lk-row.bad").count() == 4
    page.get_by_role("slider", name="Request").press("ArrowRight")
    assert chosen(page, "Request") == "b"
    assert "b: arrived at 1.5 s, queued 500 ms, prefilled in 1 chunk, 4 tokens, TTFT 2.5 s" in says(page)
    page.locator(".lk-row").nth(2).click()
    assert "c: arrived at 2 s, queued 2 s, prefilled in 2 chunks, 3 tokens" in says(page)
    assert "preempted once for 1 s: misses TTFT." in says(page)
    assert page.locator(".lk-bar.lk-preempted").count() == 2  # the legend's, and c's


@pytest.mark.browser
def test_timeline_pages_through_many_requests(show: Open) -> None:  # noqa: F811
    page = show(widgets.request_timeline(many(3, requests=60)).html())
    assert page.locator(".lk-row").count() == 24
    assert "24 of 60 requests are in sight" in page.locator(".lk-rest").inner_text()
    page.get_by_role("slider", name="Request").press("End")
    assert page.locator(".lk-row").count() == 12
    assert chosen(page, "Request") == "r59"
