"""Measurements of every widget as a reader sees it, at the widths of a chapter's column and of a phone.

    python -m tests.labkit.widget_layout [NAME ...]

prints one line for each kind of widget and says which bars it misses. Each kind is measured with all its samples, and
the worst value counts. Labels are compared in every state that one control can reach alone: all options of a list, the
ends and the middle of a slider and of a handle, a tick, a button.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tests.conftest import CHROMIUM, QUIET, settle
from tests.labkit import every_widget

DESK, PHONE = 1280, 390
COLUMN = {DESK: 736, PHONE: 358}  # pixels of a chapter's text at these widths of the window
MOST_HIGH, SCREEN, MOST_CONTROLS, LEAST_TEXT, HAND = 760, 844, 4, 11, 24

MEASURE = r"""(section) => {
  const seen = (node) => node.checkVisibility({ visibilityProperty: true }) && node.getBoundingClientRect().width > 0;
  const all = (selector) => [...section.querySelectorAll(selector)].filter(seen);
  const box = (node) => node.getBoundingClientRect();
  const stage = section.querySelector(".lk-stage"), says = section.querySelector(".lk-says");
  const controls = all("input, select, textarea, button").filter((node) =>
    !node.closest(".lk-stage") || node.matches("input[type=range], select"));
  const groups = new Set(controls.map((node) => node.type === "radio" ? node.name : node));
  const figure = box(stage), ends = [...groups].map((node) => box(node.nodeType ? node : stage));
  const texts = (root) => {
    const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT), found = [];
    while (walker.nextNode()) {
      const node = walker.currentNode, parent = node.parentElement;
      if (node.data.trim() && parent && !parent.closest("defs, title, option, style") && seen(parent)) found.push(parent);
    }
    return [...new Set(found)];
  };
  const size = (node) => {
    const scale = node.getScreenCTM ? Math.hypot(node.getScreenCTM().a, node.getScreenCTM().b) : 1;
    return parseFloat(getComputedStyle(node).fontSize) * scale;
  };
  const sizes = texts(section).map((node) => [size(node), node.textContent.trim().slice(0, 24)]);
  const smallest = sizes.reduce((a, b) => (b[0] < a[0] ? b : a), [99, ""]);
  // The corners of a label, turned as it is.
  const corners = (node) => {
    const { x, y, width, height } = node.getBBox(), matrix = node.getScreenCTM(), inset = 1.5;
    return [[x + inset, y + inset], [x + width - inset, y + inset], [x + width - inset, y + height - inset],
      [x + inset, y + height - inset]].map(([u, v]) => [matrix.a * u + matrix.c * v + matrix.e,
      matrix.b * u + matrix.d * v + matrix.f]);
  };
  const apart = (one, two) => [one, two].some((shape) => shape.some((a, i) => {
    const b = shape[(i + 1) % 4], normal = [b[1] - a[1], a[0] - b[0]];
    const spread = (points) => points.map(([x, y]) => x * normal[0] + y * normal[1]);
    const [p, q] = [spread(one), spread(two)];
    return Math.max(...p) <= Math.min(...q) || Math.max(...q) <= Math.min(...p);
  }));
  const overlaps = () => {
    const found = [];
    for (const svg of all(".lk-stage svg, .lk-rest svg")) {
      const labels = [...svg.querySelectorAll("text")].filter((node) => node.textContent.trim() && seen(node));
      const shapes = labels.map(corners), clip = box(section);
      labels.forEach((label, i) => {
        const edge = box(label), bar = svg.closest(".lk-scroll");
        if (!bar && (edge.left < clip.left - 1 || edge.right > clip.right + 1)) found.push(`cut: ${label.textContent}`);
        for (let j = 0; j < i; j += 1)
          if (!apart(shapes[i], shapes[j])) found.push(`${labels[j].textContent} | ${label.textContent}`);
      });
    }
    return found;
  };
  const handles = all(".lk-stage [role=slider]:not(input)").map((node) => {
    const { width, height } = box(node), press = (key) =>
      node.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
    const tell = () => node.getAttribute("aria-valuetext"), before = tell();
    const moves = ["ArrowRight", "ArrowLeft", "ArrowUp", "ArrowDown"].some((key) => { press(key); return tell() !== before; });
    return { label: node.getAttribute("aria-label"), moves, large: Math.min(width, height) >= 24, told: Boolean(before),
      focus: node.tabIndex === 0, kept: node.isConnected };
  });
  const still = overlaps(), worst = { count: still.length, state: "first", labels: still };
  const note = (state) => {
    const found = overlaps();
    if (found.length > worst.count) Object.assign(worst, { count: found.length, state, labels: found });
  };
  const result = {
    height: figure.height && box(section).height, controls: groups.size, smallest,
    first: !ends.length || figure.top <= Math.min(...ends.map((end) => end.top)),
    span: Math.max(figure.bottom, ...ends.map((end) => end.bottom)) - Math.min(figure.top, ...ends.map((end) => end.top)),
    verdict: seen(says) && says.textContent.trim().length > 0 &&
      Math.min(Math.abs(box(says).top - figure.bottom), Math.abs(figure.top - box(says).bottom)) <= 24,
    sentences: (says.textContent.match(/[.!?](\s|$)/g) || []).length, said: says.textContent, handles,
  };
  const put = (node, value) => {
    node.value = value;
    ["input", "change"].forEach((kind) => node.dispatchEvent(new Event(kind, { bubbles: true })));
  };
  const name = (node) => node.closest("label")?.querySelector("span")?.textContent || node.textContent;
  for (const node of section.querySelectorAll("select")) {
    const was = node.value;
    for (const { value } of node.options) { put(node, value); note(`${name(node)}: ${value}`); }
    put(node, was);
  }
  for (const node of section.querySelectorAll("input[type=range]")) {
    const was = node.value, [low, high] = [Number(node.min), Number(node.max)];
    for (const value of [low, (low + high) / 2, high]) { put(node, value); note(`${name(node)}: ${value}`); }
    put(node, was);
  }
  for (const node of section.querySelectorAll(".lk-stage [role=slider]:not(input)")) {
    const press = (key) => node.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
    for (const key of ["Home", "End"]) { press(key); note(`${node.getAttribute("aria-label")}: ${key}`); }
  }
  for (const node of section.querySelectorAll("button, input[type=checkbox]"))
    if (!/Play|Walk|Commit/.test(node.textContent)) { node.click(); note(name(node)); }
  return { ...result, overlaps: worst };
}"""


@dataclass(frozen=True)
class Seen:
    """One sample of a widget at one width of the window, as a browser draws it."""

    width: int
    height: float
    controls: int
    smallest: tuple[float, str]
    first: bool
    span: float
    verdict: bool
    sentences: int
    said: str
    handles: list[dict[str, Any]]
    overlaps: dict[str, Any]

    def misses(self) -> list[str]:
        """Return the bars that the sample misses at this width."""
        tests = {
            "height": self.width == PHONE or self.height <= MOST_HIGH,
            "span": self.width == DESK or self.span <= SCREEN,
            "controls": self.controls <= MOST_CONTROLS,
            "text": self.smallest[0] >= LEAST_TEXT - 0.05,
            "figure first": self.first,
            "verdict": self.verdict,
            "one sentence": self.sentences == 1,
            "overlaps": self.overlaps["count"] == 0,
        }
        return [name for name, met in tests.items() if not met]

    def good_handles(self) -> list[str]:
        """Return the labels of the handles that are large enough, are told in words and move with an arrow key."""
        return [one["label"] for one in self.handles if all(value for name, value in one.items() if name != "label")]


def measure(browser: Any, fragment: str, width: int) -> Seen:
    """Draw a widget's HTML in a column of a page and measure it."""
    page = browser.new_page(viewport={"width": width, "height": 900})
    column = f"<main style='width: {COLUMN[width]}px; margin: auto'>{fragment}</main>"
    page.set_content(f"<!doctype html><html lang=en><title>t</title><body style='margin: 0'>{column}")
    page.wait_for_selector("section.lk")
    settle(page)
    found = page.locator("section.lk").evaluate(MEASURE)
    page.close()
    return Seen(width=width, **{**found, "smallest": tuple(found["smallest"])})


def samples() -> dict[str, list[Any]]:
    """Return the makers of all samples by kind."""
    found: dict[str, list[Any]] = {}
    for make in every_widget.every().values():
        found.setdefault(every_widget.folder_of(make), []).append(make)
    return found


def show(folder: str, seen: Iterable[Seen]) -> str:
    """Return a line of the table."""
    seen = list(seen)
    desk, phone = ([one for one in seen if one.width == width] for width in (DESK, PHONE))
    smallest = [min(one.smallest[0] for one in part) for part in (desk, phone)]
    misses = sorted({f"{name}@{one.width}" for one in seen for name in one.misses()})
    handles = max((one.good_handles() for one in seen), key=len)
    return (
        f"{folder:<20} {max(one.height for one in desk):>5.0f} {max(one.span for one in phone):>6.0f} "
        f"{max(one.controls for one in seen):>4} {smallest[0]:>5.1f} {smallest[1]:>5.1f} "
        f"{'yes' if all(one.first for one in seen) else 'no':>5} {'yes' if all(one.verdict for one in seen) else 'no':>7} "
        f"{max(one.sentences for one in seen):>4} {max(one.overlaps['count'] for one in seen):>4} "
        f"{len(handles):>3}  {', '.join(misses) or 'meets all'}"
    )


def main(names: list[str]) -> None:
    from playwright.sync_api import sync_playwright

    print(
        f"{'':<20} {'high':>5} {'span':>6} {'ctl':>4} {'text':>5} {'phone':>5} {'first':>5} {'verdict':>7} sent over hnd"
    )
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        for folder, makers in sorted(samples().items()):
            if not names or folder in names:
                seen = [measure(browser, make().html(), width) for make in makers for width in (DESK, PHONE)]
                print(show(folder, seen), flush=True)
                for one in seen if names else []:
                    print(f"    {one}")
        browser.close()


if __name__ == "__main__":
    main(sys.argv[1:])
