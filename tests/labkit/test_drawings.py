"""The drawings: described for readers who cannot see them, and without a text that leaves its box or hides another."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import pytest

from mlsys_labkit import drawings
from mlsys_labkit._base.light_dark_colours import COLOURS
from mlsys_labkit.drawings import svg
from mlsys_labkit.drawings.parts import Box, Label, Part

NAMES = sorted(name for name, made in vars(drawings).items() if callable(made) and name[0].islower())

# Every text inside the canvas and inside its own box, no two texts over each other. Returns what is wrong.
MEASURE = """() => {
  const wrong = [];
  for (const svg of document.querySelectorAll(".lk-drawing svg")) {
    const name = svg.querySelector("title").textContent, canvas = svg.viewBox.baseVal;
    const texts = [...svg.querySelectorAll("text")].map(
      e => ({said: e.textContent, at: e.getBBox(), parent: e.parentNode}));
    for (const {said, at, parent} of texts) {
      const box = parent.querySelector("rect")?.getBBox() ?? {x: 0, y: 0, width: canvas.width, height: canvas.height};
      const right = box.x + box.width, bottom = box.y + box.height;
      if (at.x < box.x + 1 || at.x + at.width > right - 1 || at.y < box.y || at.y + at.height > bottom)
        wrong.push(`${name}: "${said}" leaves its box`);
    }
    texts.forEach((one, i) => texts.slice(0, i).forEach(two => {
      const a = one.at, b = two.at;
      if (a.x < b.x + b.width && b.x < a.x + a.width && a.y + 2 < b.y + b.height - 2 && b.y + 2 < a.y + a.height - 2)
        wrong.push(`${name}: "${one.said}" and "${two.said}" overlap`);
    }));
  }
  return wrong;
}"""
SIZE = """() => [...document.querySelectorAll(".lk-drawing svg")].map(svg => {
  const scale = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width;
  return parseFloat(getComputedStyle(svg.querySelector("text")).fontSize) * scale;
})"""


@pytest.mark.parametrize("name", NAMES)
def test_drawing_is_described_in_valid_svg(name: str) -> None:
    drawing = getattr(drawings, name)()
    picture = ElementTree.fromstring(svg.draw(drawing.title, drawing.description, drawing.height, drawing.parts))
    space = "{http://www.w3.org/2000/svg}"
    told = {part: picture.findtext(space + part) for part in ("title", "desc")}
    assert told == {"title": drawing.title, "desc": drawing.description}
    assert len(drawing.description.split()) >= 12
    assert drawing.caption.endswith(".")
    named = str(picture.get("aria-labelledby")).split()
    assert named == [str(picture.find(space + part).get("id")) for part in told]  # type: ignore[union-attr]


def test_drawings_are_distinct() -> None:
    titles = [getattr(drawings, name)().title for name in NAMES]
    assert len(titles) == len(set(titles)) >= 24


def page(browser: Any, shown: str, width: int) -> Any:
    opened = browser.new_page(viewport={"width": width, "height": 800})
    opened.set_content(f"<!doctype html><body>{shown}</body>")
    return opened


@pytest.mark.browser
def test_no_text_of_a_drawing_leaves_its_box_or_covers_another(browser: Any) -> None:
    shown = "".join(getattr(drawings, name)()._repr_html_() for name in NAMES)
    opened = page(browser, shown, 800)
    assert opened.evaluate(MEASURE) == []
    assert len(opened.evaluate(SIZE)) == len(NAMES)
    opened.close()


@pytest.mark.browser
def test_text_of_drawings_is_legible_on_a_phone(browser: Any) -> None:
    opened = page(browser, "".join(getattr(drawings, name)()._repr_html_() for name in NAMES), 390)
    assert min(opened.evaluate(SIZE)) >= 11
    wide = opened.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert wide == 0, "a drawing scrolls, the page does not"
    opened.close()


@pytest.mark.browser
def test_texts_that_overlap_or_leave_their_box_are_found(browser: Any) -> None:
    parts: list[Part] = [Box(10, 10, 20, 20, "far too long"), Label(100, 60, "one"), Label(104, 62, "two")]
    drawing = drawings.Drawing("A drawing with mistakes", "Two mistakes.", "None.", 100, parts)
    opened = page(browser, drawing._repr_html_(), 800)
    assert opened.evaluate(MEASURE) == [
        'A drawing with mistakes: "far too long" leaves its box',
        'A drawing with mistakes: "two" and "one" overlap',
    ]
    opened.close()


@pytest.mark.browser
@pytest.mark.parametrize(
    ("page_theme", "side"),
    [
        ('data-theme="dark"', "dark"),
        ('data-theme="light"', "light"),
        ('data-jp-theme-light="false"', "dark"),
        ('data-jp-theme-light="true"', "light"),
    ],
)
def test_drawing_follows_the_theme_of_its_page(browser: Any, page_theme: str, side: str) -> None:
    """The reader's system prefers the other side; without a theme of the page, the drawing follows the system."""
    other = {"dark": "light", "light": "dark"}[side]
    opened = browser.new_page(color_scheme=other)
    shown = drawings.swizzle()._repr_html_()
    opened.set_content(f"<!doctype html><body><div>{shown}</div><div {page_theme}>{shown}</div></body>")
    inks = opened.evaluate('[...document.querySelectorAll("figure")].map(f => getComputedStyle(f).color)')
    assert inks == [_rgb(getattr(COLOURS["ink"], one)) for one in (other, side)]
    opened.close()


def _rgb(colour: str) -> str:
    return f"rgb({', '.join(str(int(colour[at : at + 2], 16)) for at in (1, 3, 5))})"
