"""All widgets in one page, as in a lab: none changes another's style, and none leaves anything behind when removed."""

from __future__ import annotations

import os
import time
from typing import Any

import pytest

from tests.conftest import PAGE_SECONDS, settle
from tests.labkit import every_widget

pytestmark = [pytest.mark.browser, pytest.mark.timeout(900)]
TIMES = int(os.environ.get("LABKIT_WIDGET_VIEWS", "30"))

# Every element of one widget with what it looks like; the names of patterns are made anew each time.
NAMES = (
    "display color backgroundColor backgroundImage fill stroke strokeWidth strokeDasharray fontSize fontWeight opacity "
    "margin padding borderWidth borderStyle borderColor gridTemplateColumns gap overflowX textAlign whiteSpace cursor "
    "width height"
)
LOOKS = r"""(root, names) => [...root.querySelectorAll("*")].map((node) => {
  const style = getComputedStyle(node), plain = (text) => text.replace(/url\(.*?\)/, "url");
  return [`${node.tagName} ${node.getAttribute("class")}`, ...names.map((name) => `${name}: ${plain(style[name])}`)];
})"""
HEAD = "<!doctype html><html lang=en><title>lab</title><style>html { overflow-y: scroll }</style>"


def page_of(fragments: list[str]) -> str:
    return f"{HEAD}<body><main><h1>Lab</h1>{''.join(fragments)}</main>"


def test_a_widget_looks_the_same_alone_and_in_company(browser: Any) -> None:
    fragments = {name: make().html() for name, make in every_widget.every().items()}
    context = browser.new_context(offline=True, viewport={"width": 1000, "height": 700})
    page = context.new_page()
    page.set_content(page_of(list(fragments.values())))
    settle(page)
    together = [section.evaluate(LOOKS, NAMES.split()) for section in page.locator("section.lk").all()]
    assert len(together) == len(fragments)
    for (name, fragment), company in zip(fragments.items(), together, strict=True):
        page.set_content(page_of([fragment]))
        settle(page)
        alone = page.locator("section.lk").evaluate(LOOKS, NAMES.split())
        differ = [(a, sorted(set(b) - set(a))) for a, b in zip(alone, company, strict=True) if a != b]
        assert differ == [], (name, differ[:3])
    context.close()


# Draws the view over a stand-in for the model and takes it away again, as anywidget does with a cell that is cleared.
MOUNT = """async ([esm, state, times]) => {
  window.view ||= (await import(URL.createObjectURL(new Blob([esm], { type: "text/javascript" })))).default;
  let heard = 0;
  for (let time = 0; time < times; time += 1) {
    const own = { ...state };
    const model = { get: (name) => own[name], set: (name, value) => { own[name] = value; }, save_changes() {},
      on() { heard += 1; }, off() { heard -= 1; } };
    const el = document.createElement("div");
    document.body.append(el);
    const stop = await window.view.render({ model, el });
    for (const play of el.querySelectorAll("button")) if (play.textContent === "Play") play.click();
    stop?.();
    el.remove();
  }
  return [heard, window.timers.size];
}"""
TIMERS = """window.timers = new Set();
const [start, end] = [window.setInterval, window.clearInterval];
window.setInterval = (...how) => { const made = start(...how); window.timers.add(made); return made; };
window.clearInterval = (made) => { window.timers.delete(made); end(made); };"""


def counters(page: Any) -> dict[str, int]:
    client = page.context.new_cdp_session(page)
    client.send("HeapProfiler.collectGarbage")
    found = client.send("Memory.getDOMCounters")
    client.detach()
    return dict(found)


@pytest.mark.parametrize("folder", sorted(every_widget.folders()))
def test_a_widget_that_goes_leaves_nothing_behind(browser: Any, folder: str) -> None:
    kind, state = every_widget.by_folder()[folder]
    context = browser.new_context(offline=True)
    page = context.new_page()
    page.add_init_script(TIMERS)
    page.goto("about:blank")
    page.evaluate(MOUNT, [kind.esm, state, 5])  # what a first view makes once and for all
    before = counters(page)
    heard, timers = page.evaluate(MOUNT, [kind.esm, state, TIMES])
    assert (heard, timers) == (0, 0)
    end = time.monotonic() + PAGE_SECONDS
    while True:  # a frame that the browser still owes to the last view holds it, on a busy machine for a while
        after = counters(page)
        grown = {name: after[name] - before[name] for name in ("nodes", "jsEventListeners")}
        if all(count < TIMES for count in grown.values()) or time.monotonic() > end:
            break
        page.wait_for_timeout(200)
    context.close()
    assert all(count < TIMES for count in grown.values()), grown  # not even one a view
