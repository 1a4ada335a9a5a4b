"""Redraws of a widget while a hand moves: one per frame, of what changed, and without the numbers that are folded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from mlsys_labkit import widgets
from tests.conftest import settle

pytestmark = pytest.mark.browser
# Twenty moves within one frame, as a fast mouse reports them; the texts of the verdict before the frame and after it.
MOVES = """async ([selector, x, y]) => {
  const node = document.querySelector(selector), says = document.querySelector(".lk-says"), told = [];
  const note = (changes) => told.push(...changes.map(() => says.textContent));
  new MutationObserver(note).observe(says, { childList: true });
  for (let i = 1; i <= 20; i += 1)
    node.dispatchEvent(new PointerEvent("pointermove", { clientX: x + 5 * i, clientY: y, bubbles: true }));
  await Promise.resolve();
  const before = told.length;
  await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  return [before, told];
}"""


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """Return a page with a roofline, whose numbers are folded."""
    page = browser.new_page(viewport={"width": 900, "height": 800})
    page.set_content(f"<!doctype html><title>t</title><main>{widgets.roofline(['t4']).html()}</main>")
    page.wait_for_selector("section.lk")
    settle(page)
    yield page
    page.close()


@pytest.mark.parametrize("selector", [".lk-grip", ".lk-held > div"])
def test_moves_within_a_frame_are_one_redraw(page: Any, selector: str) -> None:
    box = page.locator(selector).first.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    before, told = page.evaluate(MOVES, [selector, x, y])
    assert (before, len(told)) == (0, 1)
    page.mouse.move(x + 100, y)  # where the last of them was
    page.mouse.up()
    assert page.locator(".lk-says").inner_text() == told[0]


def test_letting_go_draws_the_last_move_at_once(page: Any) -> None:
    """A move that waits for its frame counts, though the pointer is up by then."""
    box = page.locator(".lk-grip").bounding_box()
    x, y = box["x"] + 14, box["y"] + 14
    page.mouse.move(x, y)
    page.mouse.down()
    told = page.evaluate(
        """([x, y]) => {
          const grip = document.querySelector(".lk-grip"), says = document.querySelector(".lk-says");
          const was = says.textContent;
          for (const kind of ["pointermove", "pointerup"])
            grip.dispatchEvent(new PointerEvent(kind, { clientX: x + 90, clientY: y, bubbles: true }));
          return [was, says.textContent];
        }""",
        [x, y],
    )
    assert told[0] != told[1]


def test_a_redraw_keeps_elements_and_leaves_folded_numbers(page: Any) -> None:
    page.evaluate("for (const node of document.querySelectorAll('.lk-plot *')) node.kept = true")
    table = page.locator(".lk-rest table")
    first, said = table.text_content(), page.locator(".lk-says").inner_text()
    page.locator(".lk-grip").press("PageUp")
    assert page.locator(".lk-says").inner_text() != said
    assert page.evaluate("[...document.querySelectorAll('.lk-plot *')].every((node) => node.kept)")
    assert table.text_content() == first
    page.get_by_text("Numbers", exact=True).click()
    settle(page)
    unfolded = table.text_content()
    assert unfolded != first
    page.locator(".lk-grip").press("PageUp")
    assert table.text_content() != unfolded
