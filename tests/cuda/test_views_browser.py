"""The CUDA views in a browser: what they show and announce, by mouse and by keyboard.

That each of them draws, fits, is accessible and reads without scripts is tested for every widget in
``tests/labkit/test_widgets_browser.py``.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

import mlsys_labkit as lk
from mlsys_labkit import widgets
from tests.cuda import sample_profile as sample
from tests.labkit.test_widgets_browser import Open, says, show, value

__all__ = ["show"]  # a fixture
pytestmark = pytest.mark.browser


def chosen(page: Any) -> Any:
    return page.locator(".lk-code").get_by_role("option", selected=True)


def texts(page: Any, selector: str) -> list[str]:
    return [str(text) for text in page.locator(selector).all_inner_texts()]


# --- annotated source ------------------------------------------------------------------------------------------------


def test_source_starts_at_the_finding_and_shows_the_worst_heat(show: Open) -> None:
    page = show(widgets.annotated_source(sample.profile(), [sample.finding()]).html())
    assert chosen(page).get_attribute("id").endswith("-9")  # line 10
    assert page.get_by_label("Heat").input_value() == "wavefronts"  # 32 where 1 would do; the sectors are at their best
    assert page.locator(".lk-row.bad").count() == 1
    assert page.locator(".lk-row").nth(5).locator(".lk-flag").inner_text() == "↔"
    assert "shared race: thread (1, 0, 0) reads tile[1]" in page.locator(".lk-finding").inner_text()
    assert says(page) == (
        "Line 10: 32 wavefronts a request; 32 times the wavefronts needed: lanes queue at the same bank, in different "
        "words; finding: shared race."
    )
    assert value(page, "times the least traffic", 0) == "32×"
    assert value(page, "sectors a request", 1) == "4"


def test_source_is_walked_with_the_arrow_keys(show: Open) -> None:
    page = show(widgets.annotated_source(sample.profile(), line=6).html())
    chosen(page).focus()
    page.keyboard.press("ArrowDown")
    assert chosen(page).get_attribute("aria-label") == "Line 7: __syncthreads();"
    assert page.evaluate("document.activeElement.getAttribute('aria-selected')") == "true"
    assert says(page) == "Line 7: no memory access on this line."
    page.keyboard.press("End")
    page.keyboard.press("ArrowDown")  # there is no further line
    assert chosen(page).get_attribute("aria-label") == "Line 11: }"
    page.keyboard.press("Home")
    assert says(page).startswith("Line 1:")
    assert page.locator(".lk-row[tabindex='0']").count() == 1  # one stop for Tab, the arrows do the rest


def test_source_heat_switches_between_its_measures(show: Open) -> None:
    page = show(widgets.annotated_source(sample.profile(), line=6).html())
    shown = {}
    for key in ("sectors", "wavefronts", "requests", "steps"):
        page.get_by_label("Heat").select_option(key)
        shown[key] = [text for text in texts(page, ".lk-value") if text]
    # Line 6 and line 10; a line's requests are those of both its accesses, its lane-steps are counted once.
    assert shown == {
        "sectors": ["4", "4"],
        "wavefronts": ["1", "32"],
        "requests": ["256", "256"],
        "steps": ["4\u202f096"] * 3,  # and line 7, the barrier
    }
    page.get_by_role("button", name="Hottest line").click()
    assert says(page).startswith("Line 6")  # a tie: the first
    page.get_by_label("Heat").select_option("wavefronts")
    page.get_by_role("button", name="Hottest line").click()
    assert says(page).startswith("Line 10")
    widths = page.locator(".lk-row").nth(9).locator(".lk-bar i").evaluate_all("nodes => nodes.map(n => n.style.width)")
    assert widths == ["3.1%", "96.9%"]  # needed: 1 of 32; the rest is too much


def test_source_buttons_go_round_the_findings(show: Open) -> None:
    found = [sample.finding(line=10), sample.finding(line=6, other_line=0), sample.finding(line=0)]
    page = show(widgets.annotated_source(sample.profile(), found).html())
    seen = []
    for _ in range(3):
        page.get_by_role("button", name="Next finding").click()
        seen.append(says(page).split(":")[0])
    assert seen == ["Line 6", "Line 10", "Line 6"]


def test_source_keeps_the_chosen_line_in_sight(show: Open) -> None:
    long = sample.SOURCE + "// more\n" * 200
    page = show(widgets.annotated_source(sample.profile(source=long), line=1).html())

    def in_sight() -> bool:
        row, box = (page.locator(name).bounding_box() for name in (".lk-row[aria-selected=true]", ".lk-code"))
        return bool(box["y"] <= row["y"] <= box["y"] + box["height"] - row["height"])

    chosen(page).focus()
    page.keyboard.press("End")
    assert in_sight()
    late = show(widgets.annotated_source(sample.profile(source=long), line=150).html())
    late.wait_for_function("document.querySelector('.lk-code').scrollTop > 1000")  # without a touch
    assert chosen(page).bounding_box()["y"] < 700  # and inside the window
    page.get_by_role("button", name="Hottest line").scroll_into_view_if_needed()
    before = page.evaluate("scrollY")
    page.get_by_role("button", name="Hottest line").click()
    assert in_sight()
    assert page.evaluate("scrollY") == before  # a button moves the list, never the page under the mouse


# --- warp access -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"pattern": "coalesced"}, "128 distinct bytes in 4 sectors, as few as there can be; 100 %"),
        ({"pattern": "shifted"}, "128 distinct bytes in 5 sectors, where 4 would do; 80 %"),
        ({"pattern": "strided", "k": 8}, "128 distinct bytes in 32 sectors, where 4 would do; 12.5 %"),
        ({"pattern": "broadcast"}, "4 distinct bytes in 1 sector, as few as there can be; 12.5 %"),
        ({"pattern": "column"}, "32 wavefronts; a 32-way bank conflict"),
        ({"pattern": "padded"}, "1 wavefront; no bank conflict"),
        ({"formula": "lane", "bytes_per_lane": 8, "space": "shared"}, "2 wavefronts in 2 phases of 16 lanes; no bank"),
    ],
)
def test_warp_shows_the_counts_of_theory(show: Open, arguments: dict[str, Any], words: str) -> None:
    assert words in says(show(widgets.warp_access(**arguments).html()))


def test_warp_stride_slider_spreads_the_sectors(show: Open) -> None:
    page = show(widgets.warp_access(pattern="strided", k=1).html())
    k = page.get_by_role("slider", name="k", exact=True)
    seen = []
    for _ in range(9):
        seen.append(value(page, "sectors of 32 B"))
        k.press("ArrowRight")
    assert seen == ["4", "8", "12", "16", "20", "24", "28", "32", "32"]
    assert page.locator(".lk-sector.hit").count() == 32
    page.get_by_label("Memory").select_option("shared")
    assert value(page, "wavefronts") == "2"  # a stride of 10 words: banks repeat after 16 lanes


def test_warp_takes_a_typed_formula_and_refuses_a_broken_one(show: Open) -> None:
    page = show(widgets.warp_access().html())
    field = page.get_by_label("Element of each lane")
    field.fill("lane * 32 + (lane ^ i)")
    page.keyboard.press("Enter")
    assert value(page, "sectors of 32 B") == "32"
    field.fill("lane * (32")
    page.keyboard.press("Enter")
    assert field.get_attribute("aria-invalid") == "true"
    assert says(page) == "Formula: a bracket is not closed. Write a C expression over lane, i and k."
    page.get_by_label("Pattern").select_option("padded")
    assert field.input_value() == "lane * 33 + i"
    assert field.get_attribute("aria-invalid") is None


def test_warp_steps_through_the_requests_of_a_line(show: Open) -> None:
    page = show(widgets.warp_access(sample.profile(), line=10).html())
    assert page.get_by_label("Pattern").input_value() == "recorded"
    assert says(page).startswith("Line 10, block (0, 0, 0), warp 1: 32 lanes ask for 4 B each: 32 wavefronts;")
    page.get_by_role("button", name="Next request").click()
    assert "16 lanes ask for 4 B each: 16 wavefronts; a 16-way bank conflict" in says(page)
    assert page.locator(".lk-lane.off").count() == 16
    page.get_by_role("button", name="Next request").click()  # there is no further request
    assert page.get_by_role("slider", name="Request").get_attribute("aria-valuetext") == "2 of 2"
    page.get_by_role("button", name="Previous request").click()
    assert page.get_by_role("slider", name="Request").get_attribute("aria-valuetext") == "1 of 2"
    access = page.get_by_label("Access")
    access.select_option(label="line 10: global store of out, 4 B")
    assert "128 distinct bytes in 4 sectors" in says(page)


def test_warp_lane_by_keyboard_and_by_click(show: Open) -> None:
    page = show(widgets.warp_access(pattern="column").html())
    page.get_by_role("slider", name="Lane").press("ArrowRight")
    assert page.locator(".lk-detail").inner_text() == "Lane 1: byte 128, word 32, bank 0."
    page.locator(".lk-lane").nth(7).click()
    assert page.locator(".lk-detail").inner_text() == "Lane 7: byte 896, word 224, bank 0."
    assert page.locator(".lk-word.on").text_content() == "7"


# --- tile walk -------------------------------------------------------------------------------------------------------


def test_tiles_give_the_tiling_formula_as_the_sliders_move(show: Open) -> None:
    page = show(widgets.tile_walk(1024, 16).html())
    assert value(page, "loaded from global memory") == "537 MB"  # 2 * 1024^3 / 16 * 4
    assert value(page, "formula 2·n³/tile·4 B") == "537 MB"
    assert value(page, "arithmetic intensity") == "3.97 FLOP/B"  # 2n³ over 2n³/16 * 4 + 4n²
    page.get_by_role("slider", name="Tile", exact=True).press("ArrowRight")
    assert value(page, "loaded from global memory") == "268 MB"
    assert value(page, "shared memory a block") == "8.19 kB"  # two tiles of 32 x 32 floats
    page.get_by_role("slider", name="Tile", exact=True).press("ArrowRight")
    assert "4096 threads are more than the 1024" in says(page)
    page.get_by_role("slider", name="Register tile").press("ArrowRight")
    page.get_by_role("slider", name="Register tile").press("ArrowRight")
    assert value(page, "threads a block") == "256"
    assert value(page, "shared loads a multiply-add") == "0.5"


def test_tiles_walk_along_k_and_then_to_the_next_block(show: Open) -> None:
    page = show(widgets.tile_walk(32, 16).html())
    place = "node => [node.x, node.y].map(side => Math.round(side.baseVal.value))"
    of_matrix = ".lk-now.{}:not(.lk-tray *)"
    first = {name: page.locator(of_matrix.format(name)).evaluate(place) for name in "abc"}
    assert "this block loaded 2.05 kB of 4.1 kB" in page.locator(".lk-tray").text_content()  # 2 tiles of 16 x 16 floats
    page.get_by_role("button", name="Next step").click()
    then = {name: page.locator(of_matrix.format(name)).evaluate(place) for name in "abc"}
    assert "this block loaded 4.1 kB of 4.1 kB" in page.locator(".lk-tray").text_content()
    assert then["a"][0] > first["a"][0]
    assert then["a"][1] == first["a"][1]  # A marches right, B down, C stays
    assert then["b"][1] > first["b"][1]
    assert then["c"] == first["c"]
    assert says(page).startswith("Block 0 of 4, step 2 of 2:")
    page.get_by_role("button", name="Next step").click()
    assert says(page).startswith("Block 1 of 4, step 1 of 2:")
    page.get_by_role("button", name="Previous step").click()
    assert says(page).startswith("Block 0 of 4, step 2 of 2:")


def test_tiles_play_and_pause_in_silence(show: Open) -> None:
    page = show(widgets.tile_walk(32, 16).html())
    words = says(page)
    page.get_by_role("button", name="Play").click()
    page.wait_for_function("document.querySelector('[aria-label=\"Step along k\"]').value === '1'")
    assert says(page) == words  # a screen reader is not read a sentence at every step
    page.get_by_role("button", name="Pause").click()
    at = page.get_by_role("slider", name="Step along k").input_value()
    assert re.match(rf"Block \d of 4, step {int(at) + 1} of 2", says(page))


def test_tiles_do_not_play_where_motion_is_unwelcome(show: Open) -> None:
    page = show(widgets.tile_walk().html())
    page.emulate_media(reduced_motion="reduce")
    page.get_by_role("button", name="Next step").click()
    assert page.get_by_role("button", name="Play").count() == 0
    assert says(page).startswith("Block 0 of 16, step 2 of 4:")


# --- occupancy -------------------------------------------------------------------------------------------------------


def test_occupancy_of_a_known_case_and_what_would_help(show: Open) -> None:
    page = show(widgets.occupancy("sm_90", threads=256, registers=40).html())
    # 40 registers x 32 lanes are 1280 of 16384 a quarter: 12 warps, 48 an SM, 6 blocks of 8. With 32: 64 warps.
    assert says(page) == (
        "6 blocks of 8 warps fill 48 of 64 warp slots: 75 % occupancy; the limit: registers; "
        "at 32 registers it would be 8 blocks."
    )
    assert (value(page, "warp slots"), value(page, "registers")) == ("8", "6")
    assert page.locator(".lk-warp.even, .lk-warp.odd").count() == 48
    registers = page.get_by_role("slider", name="Registers a thread")
    for _ in range(8):
        registers.press("ArrowLeft")
    assert registers.get_attribute("aria-valuetext") == "32"
    assert "100 % occupancy; the limit: warp slots and registers." in says(page)


def test_occupancy_changes_with_the_architecture_down_to_no_block(show: Open) -> None:
    page = show(widgets.occupancy("sm_90", threads=100, registers=32, shared_bytes=100 * 1024).html())
    # 101 KiB with what is reserved: two in 228 KiB, one in the 164 KiB of sm_80, none in the 100 KiB of sm_86
    assert says(page).startswith("2 blocks of 4 warps fill 8 of 64 warp slots: 12.5 %")
    assert "28 lanes of each block's last warp never work." in says(page)
    page.get_by_label("Architecture").select_option("sm_80")
    assert says(page).startswith("1 block of 4 warps fill")
    page.get_by_label("Architecture").select_option("sm_86")
    assert says(page) == "No block fits: one block asks for more shared memory than sm_86 has, so the launch fails."
    assert page.locator("svg[role=img]").count() == 4  # the slots and three curves


# --- the roofline ----------------------------------------------------------------------------------------------------


def test_a_profile_is_placed_under_the_roof_with_its_label(show: Open) -> None:
    work = sample.profile(flops=64 * 64).work  # 128 requests of 4 sectors each way are 2 x 16384 B
    verdict = lk.Roofline.from_spec("h100-sxm").place(work).verdict
    assert verdict.startswith("transpose (source-level model, no caches) is memory bound at 0.125 FLOP/B")
    page = show(widgets.roofline(["h100-sxm"], works=[work]).html())
    assert page.locator(".lk-work text").text_content() == "transpose (source-level model, no caches)"
