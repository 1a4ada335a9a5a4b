"""Figures in a notebook that a real JupyterLab saves, with the server extension that the kit installs."""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path
from typing import Any

import nbformat
import pytest

from mlsys_labkit._frontends.figures import PLOTLY_MIME
from tests.conftest import ROOT
from tests.labkit.jupyterlab import serving

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("jupyterlab"), pytest.mark.timeout(900)]

SOURCES = [
    "import plotly.graph_objects as go, mlsys_labkit as lk",
    "lk.show(go.Figure(go.Bar(y=[1, 4])), 'The second bar is four times the first.')",
    "go.Figure(go.Bar(y=[2, 3]))",
]
PICTURES = """() => window.jupyterapp.shell.currentWidget.content.widgets
  .flatMap((cell) => Array.from(cell.outputArea?.model.toJSON() ?? []))
  .filter((output) => output.data?.["image/png"]).length"""
SAVE = """async () => {
  const { context } = window.jupyterapp.shell.currentWidget;
  await window.jupyterapp.commands.execute("docmanager:save");
  return context.model.dirty;
}"""


def installed(prefix: Path) -> Path:
    """Install the wheel's data files under ``prefix``, and return Jupyter's folder there."""
    built = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"]["build"]["targets"]["wheel"]
    for source, target in built["shared-data"].items():
        (prefix / target).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / source, prefix / target)
    return prefix / "etc" / "jupyter"


def test_a_figure_of_the_kit_is_saved_without_a_picture_and_drawn_anew(browser: Any, tmp_path: Path) -> None:
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    cells = [nbformat.v4.new_code_cell(source) for source in SOURCES]
    path = tmp_path / "work" / "figures.ipynb"
    path.parent.mkdir()
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=kernel), path)
    jupyter = installed(tmp_path / "prefix")
    with serving(path.parent, tmp_path / "home", JUPYTER_CONFIG_PATH=str(jupyter)) as lab:
        page = lab.open(browser.new_page(viewport={"width": 1200, "height": 1400}), path)
        lab.run_all(page)
        page.wait_for_function(f"() => ({PICTURES})() === 2")  # plotly has put a picture beside each
        assert page.evaluate(SAVE) is False
        page.close()
        saved = nbformat.read(path, as_version=4)
        ours, bare = [cell.outputs[0].data for cell in saved.cells[1:]]
        assert set(ours) == {PLOTLY_MIME, "text/html", "text/plain"}
        assert {PLOTLY_MIME, "image/png"} <= set(bare), "its only form where plotly is not"
        again = lab.open(browser.new_page(viewport={"width": 1200, "height": 1400}), path)
        again.locator(".jp-RenderedPlotly").first.locator("svg.main-svg").first.wait_for()
        again.close()
