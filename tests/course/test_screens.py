"""Pages as `make screens` takes them, and the fonts that they are set in."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from benchmarks import pictures, screens
from tests.conftest import ROOT
from tests.course.conftest import Site

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("site")]
FONTS = ROOT / "course/_static/fonts"
MOST_FONT_BYTES = 250_000
SMALLEST_PX = 11

# Where the line of text and the formula in it stand: an empty box stands on the baseline of what it is put into.
BASELINES = """() => [...document.querySelectorAll('p > math')].slice(0, 40).map((math) => {
  const marks = ['before', 'after'].map((side) => {  // a line may end on one side of the formula
    const mark = document.createElement('span');
    mark.style.cssText = 'display:inline-block;width:0;height:0';
    math[side](mark);
    return mark;
  });
  const space = document.createElementNS('http://www.w3.org/1998/Math/MathML', 'mspace');
  const into = math.querySelector(':scope > mrow') ?? math;
  into.prepend(space);
  const off = marks.map((mark) => space.getBoundingClientRect().bottom - mark.getBoundingClientRect().bottom);
  return off.sort((one, other) => Math.abs(one) - Math.abs(other))[0];
})"""


@pytest.mark.parametrize("name", ["index.html", "chapters/05_roofline.html", "slides/06_cuda.html"])
def test_a_page_fits_each_window_in_each_theme(site: Site, browser: Any, tmp_path: Path, name: str) -> None:
    taken = [*screens.screens_of_the_site(browser, site.folder, tmp_path, (name,))]
    assert {(one.window, one.theme) for one in taken} == {(w, t) for w in screens.WINDOWS for t in screens.THEMES}
    assert [one.file for one in taken if one.beyond] == []
    assert [(one.file, one.cut) for one in taken if one.cut and one.window == "screen"] == []
    assert [(one.file, one.smallest) for one in taken if one.smallest < SMALLEST_PX] == []
    assert len({(one.heading, one.figures) for one in taken}) == 1
    index = screens.write_index(taken, tmp_path).read_text("utf-8")
    assert set(re.findall(r'img src="([^"]+)"', index)) == {one.name for one in tmp_path.glob("*.png")}
    assert len(json.loads((tmp_path / "screens.json").read_text("utf-8"))) == 4


def test_screens_are_sixty() -> None:
    assert len([*screens.PAGES, screens.LAB]) * len(screens.WINDOWS) * len(screens.THEMES) == 60


def test_a_site_that_was_not_built_is_said_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"^screens: no page index.html in .*; build the site first: make site$"):
        next(screens.screens_of_the_site(None, tmp_path, tmp_path, ("index.html",)))


def test_fonts_are_light_and_used(site: Site, browser: Any) -> None:
    assert sum(path.stat().st_size for path in FONTS.glob("*.woff2")) <= MOST_FONT_BYTES
    page = browser.new_page()
    page.goto((site.folder / "chapters/05_roofline.html").as_uri())
    page.evaluate("() => document.fonts.ready.then(() => null)")
    loaded = page.evaluate(
        "() => [...document.fonts].filter((one) => one.status === 'loaded').map((one) => one.family)"
    )
    assert {name.strip('"') for name in loaded} == {"Source Sans 3", "Source Code Pro", "STIX Two Math"}
    page.close()


def test_formulas_stand_on_the_line_of_the_text(site: Site, browser: Any) -> None:
    page = browser.new_page()
    page.goto((site.folder / "chapters/05_roofline.html").as_uri())
    page.evaluate("() => document.fonts.ready.then(() => null)")
    off = page.evaluate(BASELINES)
    assert len(off) >= 10
    assert [one for one in off if abs(one) > 0.5] == []
    page.close()


def test_a_listing_beyond_its_box_has_a_shadow_there(site: Site, browser: Any) -> None:
    page = browser.new_page(viewport={"width": 390, "height": 844})
    page.goto((site.folder / "chapters/05_roofline.html").as_uri())
    wide = page.evaluate(
        "() => [...document.querySelectorAll('pre')].filter((one) => one.scrollWidth > one.clientWidth + 1)"
        ".map((one) => getComputedStyle(one).backgroundAttachment)"
    )
    assert wide
    assert {one.startswith("local, local, scroll, scroll") for one in wide} == {True}
    page.close()


@pytest.mark.parametrize("name", ["roofline", "race", "deadlock", "report"])
def test_moving_pictures_of_the_readme_move_and_are_light(name: str) -> None:
    path = ROOT / f"course/_static/{name}.webp"
    assert f"(course/_static/{name}.webp)" in (ROOT / "README.md").read_text("utf-8")
    assert path.stat().st_size <= pictures.MOST_BYTES
    with Image.open(path) as picture:
        frames = [picture.seek(at) or picture.convert("RGB").tobytes() for at in range(picture.n_frames)]
    assert len(set(frames)) >= 4
