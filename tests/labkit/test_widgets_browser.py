"""Widgets in a real browser with no kernel and no network: they draw, they answer to keys, they are accessible."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from mlsys_labkit import widgets
from tests.conftest import settle, unfold
from tests.labkit.test_widgets import MAKERS, all_widgets

pytestmark = pytest.mark.browser

Open = Callable[..., Any]


@pytest.fixture
def show(browser: Any) -> Iterator[Open]:
    """Open HTML in a fresh page that is offline; fail the test on a script error or a request to anywhere."""
    contexts, troubles = [], []

    def open_page(
        fragment: str, *, width: int = 900, scheme: str = "light", scripts: bool = True, body: str = ""
    ) -> Any:
        context = browser.new_context(
            offline=True, color_scheme=scheme, viewport={"width": width, "height": 700}, java_script_enabled=scripts
        )
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("request", lambda request: troubles.append(f"asked for {request.url}"))
        head = f"<!doctype html><html lang=en><title>lab</title><body {body}>"
        page.set_content(f"{head}<main><h1>Lab</h1><h2>Part</h2>{fragment}</main>")
        if scripts:
            settle(page)
            unfold(page)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert troubles == []


def says(page: Any) -> str:
    return str(page.locator(".lk-says").inner_text())


def value(page: Any, row: str, column: int = 0) -> str:
    line = page.locator("tr", has=page.get_by_role("rowheader", name=row, exact=True))
    return str(line.locator("td").nth(column).inner_text())


@all_widgets
@pytest.mark.parametrize("width", [900, 420])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_draws_without_kernel_or_network(show: Open, make: Callable[[], Any], width: int, scheme: str) -> None:
    page = show(make().html(), width=width, scheme=scheme)
    assert page.locator(".lk-static").count() == 0
    assert page.locator("section.lk").count() == 1
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")  # nothing hangs over the edge
    for picture in page.locator("svg[role=img]").all():
        assert len(picture.get_attribute("aria-label")) > 20
    paper = page.locator("section.lk").evaluate("node => getComputedStyle(node).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", paper)[:3])) > 384) == (scheme == "light")


@pytest.mark.parametrize("width", [1100, 860, 620, 420])
def test_code_has_room_beside_its_table(show: Open, width: int) -> None:
    """The list takes the width of its column, however wide the window is: JupyterLab's side bars take their share."""
    page = show(f'<div style="width: {width}px">{MAKERS["source"]().html()}</div>', width=1300)
    code, panel = (page.locator(place).bounding_box() for place in (".lk-code", ".lk-panel"))
    assert code["width"] >= min(480, 0.85 * width)
    assert panel["y"] >= code["y"] + code["height"]


@all_widgets
def test_controls_keep_their_keys_from_jupyterlab(show: Open, make: Callable[[], Any]) -> None:
    """JupyterLab's shortcuts see a key first; on a slider or a radio button ArrowDown would select the next cell.

    It lets an element in focus opt out by this attribute; text fields are spared anyway.
    """
    page = show(make().html())
    for control in page.locator("section.lk").locator("button, select, input:not([type=text])").all():
        assert control.get_attribute("data-lm-suppress-shortcuts") == "true", control.evaluate("node => node.outerHTML")


def draws_keeps_its_keys_and_is_accessible(show: Open, make: Callable[[], Any], scheme: str) -> None:
    for width in (900, 420):
        test_draws_without_kernel_or_network(show, make, width, scheme)
    test_controls_keep_their_keys_from_jupyterlab(show, make)
    page = show(make().html(), scheme=scheme)
    page.evaluate((files("axe_playwright_python") / "axe.min.js").read_text("utf-8"))
    found = page.evaluate("axe.run('main').then(result => result.violations)")
    assert [(one["id"], [node["html"][:120] for node in one["nodes"]]) for one in found] == []


@all_widgets
def test_reads_with_scripts_off(show: Open, make: Callable[[], Any]) -> None:
    page = show(make().html(), scripts=False)
    assert page.locator(".lk-static table").first.is_visible()


@pytest.mark.parametrize(
    ("attribute", "dark"),
    [
        ('data-jp-theme-light="false"', True),
        ('data-jp-theme-light="true"', False),
        ('data-theme="dark"', True),
        ('data-theme="light"', False),
    ],
)
def test_the_theme_of_the_page_wins_over_the_system(show: Open, attribute: str, dark: bool) -> None:
    page = show(widgets.strides().html(), scheme="light" if dark else "dark", body=attribute)
    ink = page.locator("section.lk").evaluate("node => getComputedStyle(node).color")
    assert (sum(map(int, re.findall(r"\d+", ink)[:3])) > 384) == dark


# --- one by one ------------------------------------------------------------------------------------------------------


def test_strides_transpose_then_walk_with_the_arrow_keys(show: Open) -> None:
    page = show(widgets.strides((3, 4)).html())
    page.get_by_role("button", name="Transpose").click()
    assert page.get_by_label("Shape").input_value() == "4, 3"
    assert page.get_by_label("Strides (elements)").input_value() == "1, 4"
    assert says(page).startswith("Not contiguous")
    page.locator(".lk-cell").first.focus()
    for key in ("ArrowDown", "ArrowRight"):
        page.keyboard.press(key)
    assert page.evaluate("document.activeElement.textContent") == "5"  # [1, 1] of the transpose: 1·1 + 1·4
    assert page.locator(".lk-slot.on").inner_text() == "5"
    assert page.locator(".lk-formula").inner_text() == "[1, 1] → 0 + 1·1 + 1·4 = 5 → byte 20, cache line 0"
    assert page.locator(".lk-cell[tabindex='0']").count() == 1  # one stop for Tab, the arrows do the rest


def test_strides_show_aliases_bounds_and_lines(show: Open) -> None:
    from playwright.sync_api import expect

    page = show(widgets.strides((2, 16)).html())
    assert value(page, "cache lines touched") == "2"
    page.get_by_label("Strides (elements)").fill("0, 1")
    page.keyboard.press("Enter")
    assert value(page, "elements that share a place (aliases)") == "16"
    page.locator(".lk-cell").nth(3).hover()
    expect(page.locator(".lk-cell.twin")).to_have_count(1)
    page.get_by_label("Offset (elements)").fill("20")
    page.keyboard.press("Enter")
    assert value(page, "elements outside memory") == "8"  # places 20 to 35, twice, of 32
    assert "undefined behaviour" in says(page)
    assert page.locator(".lk-code").inner_text() == "x.as_strided((2, 16), (0, 1), 20)"
    page.get_by_label("Shape").fill("2, banana")
    page.keyboard.press("Enter")
    assert page.get_by_label("Shape").get_attribute("aria-invalid") == "true"
    page.get_by_role("button", name="Reset").click()
    assert page.get_by_label("Shape").input_value() == "2, 16"


def test_strides_slice_and_broadcast_stay_views(show: Open) -> None:
    page = show(widgets.strides((2, 4)).html())
    page.get_by_role("button", name="Every 2nd of last axis").click()
    page.get_by_role("button", name="Flip first axis").click()
    assert page.locator(".lk-cell").all_inner_texts() == ["4", "6", "0", "2"]
    assert page.locator(".lk-code").inner_text() == "x[..., ::2][::-1]"
    page.get_by_role("button", name="Broadcast").click()
    assert page.get_by_label("Strides (elements)").input_value() == "0, -4, 2"
    assert page.locator(".lk-cell").count() == 12


def test_roofline_slider_moves_the_point_over_the_ridge(show: Open) -> None:
    page = show(widgets.roofline(["h100-sxm", "t4"]).html())
    assert "memory bound" in says(page)
    alone = show(widgets.roofline(["t4"]).html())
    starts = [[text.split()[0] for text in each.locator("svg text.halo").all_text_contents()] for each in (page, alone)]
    assert starts == [["A"] * 3 + ["B"] * 3, ["ridge", "8.1", "320"]], "one machine needs no letter"
    assert page.locator("label span", has_text="Arithmetic").is_visible()
    before = page.locator("svg.lk-plot").inner_html()
    arithmetic = page.get_by_role("slider", name="Arithmetic")
    arithmetic.focus()
    for _ in range(30):  # 30 steps of a twentieth of a decade: 1 to 31.6 FLOP/B, past both ridges
        page.keyboard.press("ArrowRight")
    assert page.locator("svg.lk-plot").inner_html() != before
    assert arithmetic.get_attribute("aria-valuetext") == "31.6 GFLOP"
    assert [value(page, "bound", column) for column in (0, 1)] == ["compute", "compute"]
    assert "not measured" in page.locator(".lk-note").inner_text()


def test_roofline_point_can_be_dragged(show: Open) -> None:
    page = show(widgets.roofline(["t4"]).html())
    plot = page.locator("svg.lk-plot").bounding_box()
    page.mouse.move(plot["x"] + plot["width"] * 0.4, plot["y"] + 200)
    page.mouse.down()
    page.mouse.move(plot["x"] + plot["width"] * 0.95, plot["y"] + 200, steps=4)
    page.mouse.up()
    assert value(page, "bound") == "compute"


def test_roofline_matmul_mode_takes_its_sizes(show: Open) -> None:
    page = show(widgets.roofline(["h100-sxm"]).html())
    page.get_by_label("Work").select_option("matmul")
    assert page.get_by_role("slider", name="Arithmetic").count() == 0
    assert "171 FLOP/B" in says(page)  # 1024 / 6
    page.get_by_label("Number format").select_option("bfloat16")
    assert "341 FLOP/B" in says(page)  # half the bytes


def test_memory_cursor_starts_at_the_peak_and_walks(show: Open) -> None:
    page = show(MAKERS["memory"]().html())
    assert says(page) == "At event 2: 12.3 kB live, the peak."
    assert value(page, "weight") == "4.1 kB"
    assert page.locator("td code").all_inner_texts() == ["lab.py:9", "lab.py:3"]
    assert page.locator(".lk-pin text").text_content() == "peak 12.3 kB at 2"
    assert page.locator("caption").inner_text() == "Alive after event 2: 2 tensors, largest first"
    page.get_by_role("slider", name="Event").press("ArrowRight")
    assert "3 of 3" in page.locator(".lk-controls").first.inner_text()
    assert page.locator("tbody tr").count() == 1
    assert "33.3 %" in says(page)
    page.get_by_role("button", name="Go to the peak").click()
    assert page.locator("tbody tr").count() == 2


def test_pca_parts_add_up_and_the_best_direction_is_best(show: Open) -> None:
    page = show(MAKERS["pca"]().html())
    for degrees in (0, 37, 121):
        page.get_by_role("slider", name="Direction").fill(str(degrees))
        kept, lost, whole = map(
            float, re.findall(r"\d+\.?\d*", page.locator(".lk-side .lk-note").first.inner_text())[:3]
        )
        assert math.isclose(kept + lost, whole, rel_tol=1e-9)
    page.get_by_role("button", name="Jump to the best").click()
    share, _, best = map(float, re.findall(r"(\d+\.?\d*) %", says(page)))
    assert share == pytest.approx(best, abs=0.2)
    page.get_by_label("Reveal the principal axes").check()
    assert page.locator(".own").count() == 2
    page.get_by_role("slider", name="Components kept").press("End")
    assert "2 of 2 components keep 100 %" in page.locator(".lk-side .lk-note").last.inner_text()


def test_pca_jump_finds_the_axis_in_space(show: Open) -> None:
    import numpy as np

    axis = np.array([-0.5, -0.5, 0.7071])
    points = np.outer(np.linspace(-3, 3, 50), axis) + 0.01 * np.random.default_rng(3).normal(size=(50, 3))
    page = show(widgets.pca(points).html())
    page.get_by_role("button", name="Jump to the best").click()
    assert float(re.findall(r"(\d+\.?\d*) %", says(page))[0]) > 99.5


def test_prediction_explains_only_after_commitment(show: Open) -> None:
    page = show(MAKERS["prediction"]().html())
    commit = page.get_by_role("button", name="Commit")
    assert commit.is_disabled()
    assert not page.get_by_text("Only the strides change.").is_visible()
    page.get_by_role("radio").first.focus()
    page.keyboard.press("Space")
    assert not page.get_by_text("Only the strides change.").is_visible()
    commit.press("Enter")
    assert says(page) == "Not this time: it is b. Only the strides change."
    assert page.locator(".right").inner_text().endswith("✓ right")
    assert page.get_by_role("radio").first.is_disabled()
    assert not commit.is_visible()


# --- whole pages -----------------------------------------------------------------------------------------------------


def test_an_executed_notebook_exports_to_a_page_that_is_alive(browser: Any, tmp_path: Path) -> None:
    import nbformat
    from nbclient import NotebookClient
    from nbconvert import HTMLExporter
    from playwright.sync_api import expect

    cells = [
        "widgets.strides((3, 4))",
        "widgets.roofline(['h100-sxm'])",
        "display(widgets.pca([[1., 2.], [0., 1.], [3., 0.]]))",
    ]
    sources = ["from mlsys_labkit import widgets", *cells]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
    NotebookClient(
        notebook, timeout=600, store_widget_state=False, resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    html, _ = HTMLExporter(template_name="lab").from_notebook_node(notebook)
    path = tmp_path / "lab.html"
    path.write_text(html, "utf-8")
    context = browser.new_context(offline=True)
    page = context.new_page()
    page.goto(path.as_uri(), wait_until="domcontentloaded")
    expect(page.locator("section.lk")).to_have_count(3)  # each inflates its module on its own
    page.get_by_role("button", name="Transpose").click()
    assert page.get_by_label("Shape").input_value() == "4, 3"
    context.close()


@all_widgets
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(show: Open, make: Callable[[], Any], scheme: str) -> None:
    axe = files("axe_playwright_python") / "axe.min.js"
    page = show(make().html(), scheme=scheme)
    page.evaluate(axe.read_text("utf-8"))
    found = page.evaluate("axe.run('main').then(result => result.violations)")
    assert [(one["id"], [node["html"][:120] for node in one["nodes"]]) for one in found] == []


# The fragment of a notebook's output, which is deflated.
@all_widgets
def test_what_a_notebook_saves_is_alive_twice_in_a_file_that_allows_inline_scripts_alone(
    browser: Any, tmp_path: Path, make: Callable[[], Any]
) -> None:
    widget = make()
    fragments = [widget._repr_mimebundle_()[0]["text/html"] for _ in range(2)]
    assert all(len(fragment) < len(widget.html()) for fragment in fragments), "deflated"
    assert all("DecompressionStream" in fragment for fragment in fragments)
    policy = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'"
    meta = f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
    head = f"<!doctype html><html lang=en><meta charset=utf-8><title>lab</title>{meta}"
    (tmp_path / "lab.html").write_text(f"{head}<main>{''.join(fragments)}</main>", "utf-8")
    context, troubles = browser.new_context(offline=True), []
    page = context.new_page()
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on("console", lambda said: troubles.append(said.text))
    page.goto((tmp_path / "lab.html").as_uri())
    page.locator("section.lk").nth(1).wait_for()  # no wait_for_function: the policy forbids what it evaluates
    assert page.locator(".lk-static").count() == 0
    settle(page)
    first, second = page.locator("section.lk").all()
    assert first.evaluate("node => node.outerHTML.length") == second.evaluate("node => node.outerHTML.length")
    context.close()
    assert troubles == []


def test_where_nothing_inflates_the_table_stays(browser: Any) -> None:
    page = browser.new_page()
    page.evaluate("delete window.DecompressionStream")
    with page.expect_event("pageerror"):
        page.set_content(widgets.strides()._repr_mimebundle_()[0]["text/html"])
    assert page.locator(".lk-static table").is_visible()
    page.close()
