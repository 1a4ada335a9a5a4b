"""Pictures of the kit's pages for eyes: light and dark, on a screen and on a phone, with an index of what each holds.

    python benchmarks/screens.py [--site build/site] [--out build/screens] [--only NAME ...]

`make screens` builds the site first. Fourteen pages of the site and one lab in JupyterLab, each run and drawn four
times, are 60 pictures; `index.html` in the folder shows them beside what was measured in the page:

    beyond    pixels by which the page is wider than its window
    cut       listings of code that are wider than their box
    smallest  the smallest text in sight, in pixels
    figures   pictures and widgets
"""

from __future__ import annotations

import argparse
import html
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jupytext
import nbformat

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tests.conftest import ROOT, chromium, settle
from tests.labkit.jupyterlab import serving

WINDOWS = {"screen": (1280, 800), "phone": (390, 844)}
THEMES = ("light", "dark")
PAGES = (
    "index.html",
    "chapters/02_transformers.html",
    "chapters/04_machines.html",
    "chapters/05_roofline.html",
    "chapters/06_cuda.html",
    "chapters/07_tiling.html",
    "chapters/08_compilers.html",
    "chapters/09_bits.html",
    "chapters/10_training.html",
    "chapters/11_serving.html",
    "chapters/13_economics.html",
    "labs.html",
    "instructor/index.html",
    "slides/06_cuda.html",
)
LAB = "lab00_your_machine"
TALLEST = 6000  # pixels: a chapter is many times as high, and its style shows long before its end

STRUCTURE = """() => {
  const seen = (node) => node.checkVisibility({ opacityProperty: true, visibilityProperty: true });
  const own = (node) => [...node.childNodes].some((one) => one.nodeType === 3 && one.data.trim());
  const scale = (node) => node.ownerSVGElement?.getScreenCTM?.()?.a ?? 1;
  const wide = (node) => node.scrollWidth > node.clientWidth + 1;
  const sizes = [...document.querySelectorAll('main *, article *, .slides *')]
    .filter((node) => own(node) && !node.closest('script, style, math, sup, sub') && seen(node))
    .map((node) => parseFloat(getComputedStyle(node).fontSize) * scale(node));
  return {
    heading: document.querySelector('h1')?.innerText.replace(/\\W+$/, '') ?? '',
    beyond: Math.max(0, document.documentElement.scrollWidth - innerWidth),
    cut: [...document.querySelectorAll('pre')].filter((one) => seen(one) && wide(one)).length,
    smallest: sizes.length ? Math.round(10 * Math.min(...sizes)) / 10 : 0,
    figures: [...document.querySelectorAll('.lk, figure, main img')].filter(seen).length,
  };
}"""


@dataclass(frozen=True)
class Screen:
    """One picture: the page, how it was looked at, and what was in it (pixels of the page's own style)."""

    page: str
    window: str
    theme: str
    file: str
    heading: str
    beyond: int
    cut: int
    smallest: float
    figures: int


def take(page: Any, name: str, window: str, theme: str, out: Path) -> Screen:
    """Write what ``page`` shows now into ``out``, and return it with what was measured."""
    file = f"{name.removesuffix('.html').replace('/', '-')}-{window}-{theme}.png"
    width, height = WINDOWS[window]
    high = page.evaluate("() => document.documentElement.scrollHeight")
    box = {"x": 0, "y": 0, "width": width, "height": max(height, min(high, TALLEST))}
    page.screenshot(path=out / file, clip=box, full_page=True)
    return Screen(name, window, theme, file, **page.evaluate(STRUCTURE))


def screens_of_the_site(browser: Any, site: Path, out: Path, names: tuple[str, ...] = PAGES) -> Iterator[Screen]:
    """Open each page of the built site as a reader does, from its folder, and take it in each window and theme."""
    for name in names:
        if not (site / name).exists():
            raise SystemExit(f"screens: no page {name} in {site}; build the site first: make site")
        for window, (width, height) in WINDOWS.items():
            for theme in THEMES:
                view = browser.new_context(viewport={"width": width, "height": height}, color_scheme=theme)
                page = view.new_page()
                page.goto((site / name).resolve().as_uri())
                page.evaluate("() => document.fonts.ready.then(() => null)")
                settle(page)
                yield take(page, name, window, theme, out)
                view.close()


def screens_of_a_lab(browser: Any, out: Path) -> Iterator[Screen]:
    """Open a solved lab in JupyterLab, run all of it, and take it in each window and theme."""
    with tempfile.TemporaryDirectory(prefix="labkit-screens-") as folder:
        notebooks = Path(folder, "labs")
        notebooks.mkdir()
        notebook = notebooks / f"{LAB}.ipynb"
        nbformat.write(jupytext.read(ROOT / "solutions" / LAB / f"{LAB}.py"), notebook)
        with serving(notebooks, Path(folder, "home")) as lab:
            page = lab.open(browser.new_page(), notebook)
            lab.run_all(page)
            for window, (width, height) in WINDOWS.items():
                page.set_viewport_size({"width": width, "height": height})
                for theme in THEMES:
                    lab.theme(page, theme)
                    settle(page)
                    yield take(page, LAB, window, theme, out)


def write_index(screens: list[Screen], out: Path) -> Path:
    """Write ``index.html``, each page's pictures in one row, and ``screens.json`` with the same facts."""
    rows = []
    for page in dict.fromkeys(screen.page for screen in screens):
        of_page = [screen for screen in screens if screen.page == page]
        cells = "".join(
            f'<td><a href="{one.file}"><img src="{one.file}" alt="{html.escape(page)}, {one.window}, {one.theme}" '
            f'loading="lazy"></a><br>{one.window}, {one.theme}: {one.beyond} px beyond, {one.cut} cut, '
            f"{one.smallest:g} px, {one.figures} figures</td>"
            for one in of_page
        )
        rows.append(f"<tr><th>{html.escape(of_page[0].heading or page)}</th>{cells}</tr>")
    style = "img{width:280px;height:360px;object-fit:cover;object-position:top}td{font:12px sans-serif}"
    head = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Screens</title><style>{style}</style>'
    (out / "index.html").write_text(f"{head}<table>{''.join(rows)}</table></html>\n", "utf-8")
    (out / "screens.json").write_text(json.dumps([asdict(one) for one in screens], indent=1) + "\n", "utf-8")
    return out / "index.html"


def main() -> None:
    """Take all pictures, saying how many are done."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--site", type=Path, default=ROOT / "build/site")
    parser.add_argument("--out", type=Path, default=ROOT / "build/screens")
    parser.add_argument("--only", nargs="+", choices=[*PAGES, LAB], default=[*PAGES, LAB], metavar="NAME")
    given = parser.parse_args()
    shutil.rmtree(given.out, ignore_errors=True)
    given.out.mkdir(parents=True)
    wanted, screens = 4 * len(given.only), []
    with chromium() as browser:
        of_site = screens_of_the_site(
            browser, given.site, given.out, tuple(name for name in PAGES if name in given.only)
        )
        of_lab = screens_of_a_lab(browser, given.out) if LAB in given.only else iter(())
        for taken in (of_site, of_lab):
            for screen in taken:
                screens.append(screen)
                print(f"{len(screens):3} of {wanted}  {screen.file}", flush=True)
    print(write_index(screens, given.out))


if __name__ == "__main__":
    main()
