"""``jupyter nbconvert --to labkit_html``: a page whose widgets and figures work with the network cut off."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jupytext
import nbformat
import pytest

from tests.conftest import ROOT
from tests.labkit import every_widget
from tests.labkit.page_axe import serious

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("jupyterlab"), pytest.mark.timeout(900)]
FOREIGN = [".js-plotly-plot"]  # drawn by plotly.js
NETWORK = re.compile(r"^(?!file:|data:|blob:|about:)")


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run a notebook, save its widgets' state, and export it: offline, nbconvert's own page is blank."""
    folder = tmp_path_factory.mktemp("page")
    nbformat.write(every_widget.notebook(), folder / "all.ipynb")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "JUPYTER_CONFIG_DIR": str(folder / "config")}
    command = [sys.executable, "-m", "nbconvert", "--to", "labkit_html", "--execute", "all.ipynb"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr[-2000:]
    return folder / "all.html"


@pytest.fixture(scope="module")
def page(exported: Path, browser: Any) -> Iterator[Any]:
    context = browser.new_context(viewport={"width": 1000, "height": 800})
    context.route(NETWORK, lambda route: route.abort())
    opened = context.new_page()
    opened.troubles = []
    opened.on("pageerror", lambda error: opened.troubles.append(str(error)))
    opened.on("console", lambda said: said.type == "error" and opened.troubles.append(said.text))
    opened.on("requestfailed", lambda request: opened.troubles.append(f"asked for {request.url}"))
    opened.goto(exported.as_uri())
    opened.wait_for_function(
        "count => document.querySelectorAll('section.lk').length === count", arg=len(every_widget.every())
    )
    yield opened
    context.close()


@pytest.mark.parametrize("number", range(len(every_widget.every())), ids=list(every_widget.every()))
def test_every_widget_lives_by_keyboard_and_by_mouse(page: Any, number: int) -> None:
    section = page.locator("section.lk").nth(number)
    for move in (every_widget.press, every_widget.grip):
        every_widget.changes(section, move)
    assert page.troubles == []


def test_the_figure_is_drawn_and_the_formula_too(page: Any) -> None:
    page.locator(".lk-figure .bars .point").first.wait_for(state="attached")
    assert page.locator(".lk-figure .bars .point").count() == 2
    assert page.locator(".lk-figure details[open]").count() == 0
    assert page.locator("math msup").count() == 1
    assert page.troubles == []


# 1000 px at 200 % are 500 px to the page.
@pytest.mark.parametrize("width", [1300, 800, 500, 420])
def test_nothing_hangs_over_the_edge(page: Any, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    page.wait_for_function("document.documentElement.scrollWidth <= innerWidth")


def test_axe_finds_nothing_serious(page: Any) -> None:
    """Take most texts from the page: this has to be the last test of it."""
    page.set_viewport_size({"width": 1000, "height": 800})
    assert serious(page, FOREIGN) == []


LABS = ("lab00_your_machine", "lab01_linear_algebra", "lab02_pca")


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.soak] * (name != LABS[0])) for name in LABS])
def test_a_solved_lab_is_accessible_and_fits(tmp_path: Path, browser: Any, name: str) -> None:
    solved = jupytext.read(ROOT / "solutions" / name / f"{name}.py")
    nbformat.write(solved, tmp_path / "lab.ipynb")
    environment = {**os.environ, "JUPYTER_CONFIG_DIR": str(tmp_path / "config")}
    command = [sys.executable, "-m", "nbconvert", "--to", "labkit_html", "--execute", "lab.ipynb"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr[-2000:]
    context = browser.new_context(viewport={"width": 1000, "height": 800}, reduced_motion="reduce")
    context.route(NETWORK, lambda route: route.abort())
    opened = context.new_page()
    opened.goto((tmp_path / "lab.html").as_uri())
    opened.wait_for_function("() => document.querySelectorAll('.lk-static').length === 0")
    opened.set_viewport_size({"width": 420, "height": 800})
    opened.wait_for_function("document.documentElement.scrollWidth <= innerWidth")
    opened.set_viewport_size({"width": 1000, "height": 800})
    assert serious(opened, FOREIGN) == []
    context.close()


def test_the_page_without_figures_carries_no_plotly() -> None:
    from mlsys_labkit._frontends.page.exporter import PageExporter

    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("1 + 1")])
    html, _ = PageExporter().from_notebook_node(notebook)
    assert len(html) < 50_000
