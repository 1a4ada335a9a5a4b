"""Handles of the widgets: a pointer and the keys move them, and the drawing agrees with the model afterwards."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest

from tests.conftest import settle
from tests.labkit import every_widget
from tests.labkit.widget_grips import Grip, grips

pytestmark = pytest.mark.browser
State = Mapping[str, Any]
every_grip = pytest.mark.parametrize("one", grips(), ids=Grip.name)
ASKS = r"\b([Dd]rag|([Mm]ove|[Tt]urn) the (dot|line|mark|cursor|bound))"
LEAST = 18  # kinds of widget with a handle

# Draws a view over a stand-in for the widget's model, whose fields the test reads.
MOUNT = """async ([esm, css, state]) => {
  const view = (await import(URL.createObjectURL(new Blob([esm], { type: "text/javascript" })))).default;
  window.own = state;
  const model = { get: (name) => state[name], set: (name, value) => { state[name] = value; }, save_changes() {},
    on() {}, off() {} };
  const style = document.createElement("style"), el = document.createElement("div");
  style.textContent = css;
  document.querySelector("main").replaceChildren(style, el);
  await view.render({ model, el });
}"""


@pytest.fixture
def page(browser: Any) -> Any:
    context = browser.new_context(offline=True, viewport={"width": 900, "height": 900})
    page = context.new_page()
    page.set_content("<!doctype html><html lang=en><title>t</title><main></main>")
    yield page
    context.close()


def mount(page: Any, kind: Any, state: State) -> None:
    page.evaluate(MOUNT, [kind.esm, kind.css, dict(state)])
    settle(page)


def value(page: Any, grip: Any, one: Grip) -> Any:
    """Return what the handle sets: a field of the model, or its own place."""
    return page.evaluate("window.own")[one.field] if one.field else grip.get_attribute("aria-valuenow")


def drag(page: Any, grip: Any, by: tuple[int, int]) -> None:
    grip.scroll_into_view_if_needed()
    box = grip.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + by[0], y + by[1], steps=4)
    page.mouse.up()
    settle(page)


@every_grip
def test_pointer_and_keys_move_a_handle_and_the_model_agrees(page: Any, one: Grip) -> None:
    kind, state = every_widget.shown_by(one.make)
    mount(page, kind, state)
    grip = page.locator(f'.lk-stage [role=slider][aria-label="{one.label}"]')
    box = grip.bounding_box()
    assert min(box["width"], box["height"]) >= 24
    before = value(page, grip, one)
    for move in (lambda: drag(page, grip, one.drag), lambda: grip.press(one.key)):
        said = grip.get_attribute("aria-valuetext")
        move()
        now = value(page, grip, one)
        assert now != before, "the value changes"
        before = now
        told = grip.get_attribute("aria-valuetext")
        assert told != said, "the text says what changed"
        assert one.expected({**page.evaluate("window.own"), "now": int(grip.get_attribute("aria-valuenow"))}) in told
        assert page.evaluate("document.activeElement.getAttribute('aria-label')") == one.label, "the focus stays"
    if one.field:
        text = page.locator("section.lk").inner_text()
        mount(page, kind, page.evaluate("window.own"))
        assert page.locator("section.lk").inner_text() == text, "a drawing of the state as it is now"


@pytest.mark.parametrize("one", [one for one in grips() if one.ends], ids=Grip.name)
def test_home_and_end_reach_the_ends(page: Any, one: Grip) -> None:
    kind, state = every_widget.shown_by(one.make)
    mount(page, kind, state)
    grip = page.locator(f'.lk-stage [role=slider][aria-label="{one.label}"]')
    for key, end in (("End", "max"), ("Home", "min")):
        grip.press(key)
        assert grip.get_attribute("aria-valuenow") == grip.get_attribute(f"aria-value{end}")


def test_no_lead_asks_to_move_what_does_not_move(page: Any) -> None:
    """A lead that asks to drag belongs to a widget with a handle."""
    for folder, (kind, state) in every_widget.by_folder().items():
        mount(page, kind, state)
        lead = page.locator(".lk-lead")
        asks = lead.count() and re.search(ASKS, lead.inner_text())
        assert not asks or page.locator(".lk-stage [role=slider]").count(), (folder, lead.inner_text())


def test_most_kinds_of_widget_have_a_handle() -> None:
    kinds = {every_widget.folder_of(one.make) for one in grips()}
    assert len(kinds) >= LEAST, sorted(every_widget.folders() - kinds)
