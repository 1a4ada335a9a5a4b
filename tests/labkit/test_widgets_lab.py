"""Every widget in a real JupyterLab, with its kernel: drawn, moved, accessible, light and dark, at several widths."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import nbformat
import pytest

from tests.labkit import every_widget
from tests.labkit.jupyterlab import DEADLINE_SECONDS, Lab, serving
from tests.labkit.page_axe import AXE, COLOURS

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("jupyterlab"), pytest.mark.timeout(900)]
COUNT = "count => document.querySelectorAll('section.lk').length === count"
# The notebook's own contents. Toolbars, prompts and editors are JupyterLab's, and for its project to mend.
OURS = """(rules) => axe.run(
  { include: [['.jp-OutputArea-output'], ['.jp-RenderedMarkdown']], exclude: [['.js-plotly-plot']] },
  { ...rules, resultTypes: ['violations'] }
).then((result) => result.violations)"""
OVER = """() => [...document.querySelectorAll(".jp-OutputArea-output")]
  .filter((output) => output.scrollWidth > output.clientWidth + 1).map((output) => output.textContent.slice(0, 80))"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    folder = tmp_path_factory.mktemp("lab")
    (folder / "notebooks").mkdir()
    nbformat.write(every_widget.notebook(), folder / "notebooks/all.ipynb")
    bare = every_widget.notebook()
    bare.cells = [nbformat.v4.new_code_cell("1 + 1")]
    nbformat.write(bare, folder / "notebooks/bare.ipynb")
    with serving(folder / "notebooks", folder / "home") as running:
        yield running


@pytest.fixture(scope="module")
def page(lab: Lab, browser: Any) -> Iterator[Any]:
    context = browser.new_context(viewport={"width": 1300, "height": 900})
    bare = lab.open(context.new_page(), lab.folder / "bare.ipynb")
    lab.run_all(bare)
    bare.close()
    lab.usual.update(lab.troubles)  # what JupyterLab and its extensions complain of without us
    lab.troubles.clear()
    opened = lab.open(context.new_page(), lab.folder / "all.ipynb")
    lab.run_all(opened)
    opened.wait_for_function(COUNT, arg=len(every_widget.every()))
    yield opened
    context.close()


def test_all_draw_move_and_complain_of_nothing(lab: Lab, page: Any) -> None:
    for number in range(len(every_widget.every())):
        section = page.locator("section.lk").nth(number)
        section.scroll_into_view_if_needed()
        for move in (every_widget.press, every_widget.grip):
            every_widget.changes(section, move)
    assert lab.complaints() == set()


# Which parts there are, and their names, do not depend on the theme.
@pytest.mark.parametrize(("theme", "rules"), [("light", {}), ("dark", {"runOnly": COLOURS})])
def test_axe_finds_nothing_serious(lab: Lab, page: Any, theme: str, rules: dict[str, list[str]]) -> None:
    lab.theme(page, theme)
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE)
    found = page.evaluate(OURS, rules)
    bad = [(one["id"], one["nodes"][0]["html"][:150]) for one in found if one["impact"] in ("serious", "critical")]
    assert bad == []


# With the side bar open, as JupyterLab starts; 1300 px at 200 % are 650 px to the page, and there one closes it.
@pytest.mark.parametrize("width", [1300, 800, 650])
def test_no_output_is_wider_than_its_cell(page: Any, width: int) -> None:
    side = "expandLeft" if width > 650 else "collapseLeft"
    page.evaluate(f"() => window.jupyterapp.shell.{side}()")
    page.set_viewport_size({"width": width, "height": 900})
    page.wait_for_function(f"({OVER})().length === 0", timeout=DEADLINE_SECONDS * 1000)


def test_the_file_menu_exports_the_living_page(lab: Lab, page: Any) -> None:
    formats = page.request.get(f"{lab.url}api/nbconvert?token={lab.token}").json()
    assert formats["labkit_html"]["output_mimetype"] == "text/html"
