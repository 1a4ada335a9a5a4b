"""The collective animator, the pipeline Gantt and the timeline of ranks: models, fragments, and a real browser."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mlsys_labkit import widgets
from mlsys_labkit.errors import LabkitError
from mlsys_labkit.ranks import Compute, Event, Link, Recv, RunTrace, Send, pipeline_programs, schedule, simulate
from mlsys_labkit.widgets.collective_animator import model as collective
from mlsys_labkit.widgets.pipeline_gantt import model as pipeline
from tests.labkit import test_widgets as general, test_widgets_browser as in_browser, twins
from tests.labkit.test_widgets_browser import Open, show, value

__all__ = ["show"]  # a fixture

ROOM = Path(pipeline.__file__).parent.parent
SOURCES = {"collective": ROOM / "collective_animator/model.js", "pipeline": ROOM / "pipeline_gantt/model.js"}
MODULES = {"collective": collective, "pipeline": pipeline}
SLOW = Link(latency_seconds=2e-4, bytes_per_second=1e9)


def says(page: Any) -> str:
    return str(page.locator(".lk-says").first.inner_text())


def run() -> RunTrace:
    programs = pipeline_programs(
        schedule("1f1b", 4, 6), forward_seconds=1e-3, backward_seconds=2e-3, message_bytes=100_000, prefetch=False
    )
    return simulate(programs, SLOW)


MAKERS: dict[str, Callable[[], Any]] = {
    "ring": lambda: widgets.collective_animator(),
    "exchange": lambda: widgets.collective_animator("all_to_all", ranks=8),
    "gantt": lambda: widgets.pipeline_gantt(),
    "interleaved": lambda: widgets.pipeline_gantt(4, 8, "interleaved", chunks=2),
    "timeline": lambda: widgets.rank_timeline(run()),
}
every = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())


def calls() -> list[twins.Call]:
    out: list[twins.Call] = []
    for name in collective.COLLECTIVES:
        out.append(("collective", "ways", [name]))
        for way in collective.ways(name):
            for p in (2, 3, 5, 8, 9):
                out += [("collective", "rounds", [name, way, p]), ("collective", "traffic", [name, way, p])]
                for step in range(2 * p):
                    out += [("collective", call, [name, way, p, step]) for call in ("held", "sent")]
            for p in (2, 3, 8, 64, 1000):
                out += [("collective", "seconds", [name, way, p, size, 5e-6, 1e11]) for size in (0, 1e3, 1e9)]
    for name in ("gpipe", "1f1b", "interleaved", "zero_bubble"):
        for v in (1, 2, 3) if name == "interleaved" else (1,):
            for p in (1, 2, 4, 7):
                for m in (p, 2 * p, 3 * p) if v > 1 else (1, 4, 9):
                    out.append(("pipeline", "steps", [name, p, m, v]))
                    for forward, backward in ((1, 2), (2, 0.5), (1, 3)):
                        given = [name, p, m, v, forward, backward]
                        drawn = pipeline.bars(*given)
                        out += [("pipeline", "bars", given), ("pipeline", "bubble", given)]
                        out.append(("pipeline", "idle", [drawn, p, max(bar[4] for bar in drawn)]))
                        out += [("pipeline", "live", [drawn, rank]) for rank in range(p)]
    return out


def test_the_models_are_the_same_in_python_and_javascript() -> None:
    asked = calls()
    twins.compare(MODULES, asked, twins.in_node(SOURCES, asked))


def test_animator_state_ends_with_the_collectives_result() -> None:
    for p in (2, 5, 8):
        full = 2**p - 1
        for way in collective.ways("all_reduce"):
            last = len(collective.rounds("all_reduce", way, p))
            after = collective.held("all_reduce", way, p, last)
            assert {mask for row in after for mask in row} == {full}
            assert collective.sent("all_reduce", way, p, last) == collective.traffic("all_reduce", way, p)


def test_the_bars_leave_the_bubble_of_the_formula() -> None:
    for name, v, slots in (("gpipe", 1, 3), ("1f1b", 1, 3), ("interleaved", 2, 1.5), ("zero_bubble", 1, 1)):
        drawn = pipeline.bars(name, 4, 8, v, 1, 2)
        length = max(bar[4] for bar in drawn)
        assert length == 8 * 3 + 3 * slots
        assert pipeline.idle(drawn, 4, length) == pytest.approx(3 * slots / length)
    assert pipeline.live(pipeline.bars("1f1b", 2, 2, 1, 1, 2), 0) == [(0, 1), (1, 2), (6, 1), (9, 0)]


@every
def test_fragments_keep_the_house_rules(make: Callable[[], Any]) -> None:
    general.test_bundle_has_the_live_view_the_fragment_and_text(make)
    general.test_fragment_is_small_and_asks_for_nothing_from_the_network(make)
    general.test_without_scripts_a_table_with_caption_and_headers_is_left(make)


def test_static_tables_hold_the_numbers() -> None:
    ring = general.Page(MAKERS["ring"]().html()).text
    assert "1.5 MB" in ring, "2(p-1)/p of a tensor of 1 MB, 4 ranks"
    gantt = re.sub(r"\s+", " ", general.Page(MAKERS["interleaved"]().html()).text)
    assert "1F1B 27.3 % 33 4 3 2 1" in gantt
    assert "interleaved 1F1B 15.8 % 28.5 11 9 7 5" in gantt
    line = general.Page(MAKERS["timeline"]().html()).text
    assert "on the critical path: 27 ms computing, 4.5 ms messages" in line
    assert "18 ms" in line


def test_a_long_trace_says_what_it_leaves_out() -> None:
    trace = simulate([[Compute(f"t{at}", 1) for at in range(2500)]])
    carried = general.state(widgets.rank_timeline(trace))
    assert len(carried["bars"]) == 2000
    assert "last 500 bars" in carried["note"]


def test_messages_of_asynchronous_calls_are_arrows_too() -> None:
    programs = pipeline_programs(schedule("gpipe", 3, 2), message_bytes=10)
    carried = general.state(widgets.rank_timeline(simulate(programs, Link(1, 10))))
    assert len(carried["arrows"]) == 2 * 2 * 2
    assert all(start + 2 <= end for _, start, _, end, _, _ in carried["arrows"])
    assert any(on for *_, on in carried["arrows"])


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: widgets.collective_animator("all_sum"), "expected a collective of all_reduce"),
        (lambda: widgets.collective_animator("broadcast", "star"), "broadcast goes by tree, ring, direct"),
        (lambda: widgets.collective_animator(ranks=9), "2 to 8 ranks"),
        (lambda: widgets.collective_animator(cluster_ranks=3), "a cluster of"),
        (lambda: widgets.collective_animator(latency_seconds=0), "expected positive"),
        (lambda: widgets.pipeline_gantt(schedule="dual"), "expected a schedule of gpipe"),
        (lambda: widgets.pipeline_gantt(backward=0.7), "backward of"),
        (lambda: widgets.pipeline_gantt(stages=9), "stages from 1 to 8"),
        (lambda: widgets.pipeline_gantt(4, 6, "interleaved", chunks=2), "a multiple of 4"),
        (lambda: widgets.pipeline_gantt(chunks=2), "one chunk a stage"),
        (lambda: widgets.rank_timeline(RunTrace(1, (Event(0, "compute", "F0"),), "local")), "has no times"),
        (lambda: widgets.rank_timeline(simulate([[Compute("a", 0)]])), "took time"),
    ],
)
def test_a_wrong_argument_is_one_line(make: Callable[[], Any], says: str) -> None:
    with pytest.raises(LabkitError, match=says):
        make()


# --- in a browser ----------------------------------------------------------------------------------------------------


@pytest.mark.browser
@pytest.mark.parametrize("make", [MAKERS[name] for name in ("exchange", "interleaved", "timeline")])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_draws_keeps_its_keys_and_is_accessible(show: Open, make: Callable[[], Any], scheme: str) -> None:
    in_browser.draws_keeps_its_keys_and_is_accessible(show, make, scheme)


@pytest.mark.browser
def test_a_ring_is_walked_by_keys_to_its_result(show: Open) -> None:
    page = show(widgets.collective_animator("all_reduce", "ring", 4).html())
    rounds = page.get_by_role("slider", name="Round")
    rounds.press("End")
    assert rounds.get_attribute("aria-valuetext") == "6 of 6"
    assert "4 of 4 ranks have their result" in says(page)
    assert value(page, "0") == "6 of 6"
    assert value(page, "3", 1) == "1.5 MB of 1.5 MB"
    assert page.locator(".lk-slot").count() == 4 * 4 * 4
    rounds.press("ArrowLeft")
    assert "0 of 4 ranks have their result" in says(page), "each still lacks its last chunk"
    page.locator(".lk-rest summary").click()
    assert "chunk 0 = 0 + 1 + 2 + 3" in page.locator(".lk-rest details li").first.inner_text()
    page.get_by_role("button", name="Next round").click()
    assert "4 of 4" in says(page)


@pytest.mark.browser
def test_another_collective_brings_its_algorithms(show: Open) -> None:
    page = show(widgets.collective_animator().html())
    selects = page.locator("select")
    selects.first.select_option("broadcast")
    assert selects.nth(1).locator("option").all_inner_texts() == ["tree", "ring", "direct"]
    selects.nth(1).select_option("tree")
    page.get_by_role("slider", name="Ranks", exact=True).press("End")
    page.get_by_role("slider", name="Round").press("End")
    assert value(page, "0") == "3 of 3"
    assert "8 of 8 ranks have their result" in says(page)


@pytest.mark.browser
def test_the_tree_beats_the_ring_only_below_the_crossing(show: Open) -> None:
    page = show(widgets.collective_animator("all_reduce", "ring", 8, cluster_ranks=8, tensor_bytes=1e5).html())
    told = page.locator(".lk-says").nth(1)
    # 6(a + n/B) = 14(a + n/8B): n = 32/17·a·B = 471 kB at 5 µs and 50 GB/s
    assert "The tree beats the ring below 471 kB" in told.inner_text()
    assert "ring 73.5 µs" in told.inner_text(), "14 (5 µs + 12.5 kB / 50 GB/s)"
    assert "tree 42 µs" in told.inner_text(), "6 (5 µs + 100 kB / 50 GB/s)"
    page.get_by_role("slider", name="Tensor").press("End")
    assert "ring 350 ms" in told.inner_text(), "10 GB x 14/8 / 50 GB/s"
    assert "tree 1.2 s" in told.inner_text(), "6 x 10 GB / 50 GB/s"


@pytest.mark.browser
def test_play_runs_and_is_not_offered_to_who_wants_no_motion(show: Open, browser: Any) -> None:
    page = show(widgets.collective_animator().html())
    page.get_by_role("button", name="Play").click()
    page.wait_for_function("document.body.innerText.includes('2 of 6')")
    page.get_by_role("button", name="Pause").click()
    context = browser.new_context(offline=True, reduced_motion="reduce")
    quiet = context.new_page()
    quiet.set_content(f"<main>{widgets.collective_animator().html()}</main>")
    assert not quiet.get_by_role("button", name="Play").is_visible()
    context.close()


@pytest.mark.browser
def test_gantt_sliders_move_the_bubble_with_the_formula(show: Open) -> None:
    page = show(widgets.pipeline_gantt(4, 8).html())
    assert "the bubble is 27.3 % of all time; (p − 1) / (m + p − 1) = 27.3 %; 33 forwards" in says(page)
    assert [value(page, str(stage), 4) for stage in range(4)] == ["4", "3", "2", "1"]
    page.get_by_role("slider", name="Micro-batches, m").press("End")
    assert "8.57 %" in says(page)  # 3/35
    page.locator("select").select_option("gpipe")
    assert value(page, "0", 4) == "32"
    page.locator("select").select_option("interleaved")
    page.get_by_role("slider", name="Stages, p").press("ArrowLeft")
    assert page.get_by_role("slider", name="Micro-batches, m").get_attribute("aria-valuetext") == "30", (
        "a multiple of 3"
    )
    assert "(p − 1) / (v·m + p − 1) = 3.23 %" in says(page)  # 2/62
    page.locator("select").select_option("zero_bubble")
    assert not page.get_by_role("slider", name="Chunks a stage, v").is_visible()
    page.get_by_role("slider", name="Time").press("ArrowRight")
    assert value(page, "0") == "F0"


@pytest.mark.browser
def test_gantt_says_when_its_formula_does_not_hold(show: Open) -> None:
    page = show(widgets.pipeline_gantt(4, 8, "zero_bubble", backward=3.0).html())
    assert "which holds for m ≥ p and W ≤ F" in says(page)


@pytest.mark.browser
def test_timeline_shows_what_each_rank_does_at_the_cursor(show: Open) -> None:
    link = Link(latency_seconds=1, bytes_per_second=10)
    trace = simulate([[Compute("load", 4), Send(1, 30)], [Recv(0), Compute("use", 2)]], link)
    page = show(widgets.rank_timeline(trace).html())
    assert "2 ranks in 10 s: computing fills 30 % of their time;" in says(page)
    assert "6 s computing, 4 s messages" in says(page)
    page.get_by_role("slider", name="Time").fill("500")
    assert [value(page, str(rank)) for rank in (0, 1)] == ["send", "recv"]
    assert page.locator(".lk-arrow.on").count() == 1
    assert page.locator(".lk-bar.on").count() == 2
    plot = page.locator(".lk-plot").bounding_box()
    page.mouse.click(plot["x"] + plot["width"] - 20, plot["y"] + 20)
    assert value(page, "1") == "use"
