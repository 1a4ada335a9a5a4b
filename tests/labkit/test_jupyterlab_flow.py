"""A student's notebook in a real JupyterLab: the colours of %%cuda cells, and predictions after Run All."""

from __future__ import annotations

import json
import shutil
import tomllib
from pathlib import Path
from typing import Any

import nbformat
import pytest

from tests.conftest import ROOT
from tests.labkit.jupyterlab import RUN_ALL, serving
from tests.labkit.person import LAB
from tests.labkit.test_saving import installed

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("jupyterlab"), pytest.mark.timeout(900)]

KERNEL = "__global__ void twice(float* x)\n{\n    x[threadIdx.x] *= 2; // one thread, one element\n}"
SOURCES = ["# one thread", f"%%cuda twice\n{KERNEL}", f"%%cudaless\n{KERNEL}", f"%%cu\n{KERNEL}"]
LANGUAGES = "() => [...window.jupyterapp.shell.currentWidget.content.model.cells].map((cell) => cell.mimeType)"
PYTHON, CPP = "text/x-ipython", "text/x-c++src"
# A comment of C++ is one token; Python sees an operator and words.
COMMENTS = """() => window.jupyterapp.shell.currentWidget.content.widgets.map((cell) =>
  [...cell.node.querySelectorAll('.cm-line span')].some((span) => span.textContent === '// one thread, one element'))"""
EDIT = """([index, text]) => window.jupyterapp.shell.currentWidget.content.model.cells.get(index)
  .sharedModel.setSource(text)"""
CHOSEN = """() => [...document.querySelectorAll('.jp-OutputArea-output .lk-option input')]
  .filter((radio) => radio.checked && radio.disabled).map((radio) => radio.value)"""


def written(path: Path, *sources: str) -> Path:
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=kernel), path)
    return path


def test_cuda_cells_are_coloured_as_cpp(browser: Any, tmp_path: Path) -> None:
    path = written(tmp_path / "work" / "kernels.ipynb", *SOURCES)
    installed(tmp_path / "prefix")
    with serving(path.parent, tmp_path / "home", JUPYTER_PATH=str(tmp_path / "prefix/share/jupyter")) as lab:
        page = lab.open(browser.new_page(viewport={"width": 1200, "height": 1400}), path)
        expect = f"(wanted) => JSON.stringify(({LANGUAGES})()) === JSON.stringify(wanted)"
        in_any_order = f"(wanted) => JSON.stringify(({LANGUAGES})().sort()) === JSON.stringify(wanted)"
        page.wait_for_function(expect, arg=[PYTHON, CPP, PYTHON, CPP])
        page.wait_for_function(f"() => ({COMMENTS})().join() === 'false,true,false,true'")
        page.evaluate(EDIT, [0, SOURCES[1]])  # typing the magic, and deleting it
        page.evaluate(EDIT, [1, KERNEL])
        page.wait_for_function(expect, arg=[CPP, PYTHON, PYTHON, CPP])
        page.wait_for_function(f"() => ({COMMENTS})().join() === 'true,false,false,true'")
        page.evaluate("() => window.jupyterapp.shell.currentWidget.sessionContext.restartKernel()")
        page.evaluate("() => window.jupyterapp.commands.execute('notebook:insert-cell-below')")
        page.wait_for_function(in_any_order, arg=sorted([CPP, PYTHON, PYTHON, CPP, PYTHON]))
        page.wait_for_function(f"() => ({COMMENTS})()[0]")
        assert not [one for one in lab.troubles if "mlsys" in one]
        page.close()


def test_predictions_stay_after_run_all_and_after_a_restart(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "work" / LAB / f"{LAB}.ipynb"
    path.parent.mkdir(parents=True)
    shutil.copy(ROOT / "labs" / LAB / f"{LAB}.ipynb", path)
    notebook = nbformat.read(path, as_version=4)
    opening = [cell for cell in notebook.cells if cell.cell_type == "code"][:3]
    asks = [cell for cell in notebook.cells if cell.source.startswith("lk.predict(")][:2]
    notebook.cells = [*opening, *(ask for ask in asks if ask not in opening)]
    nbformat.write(notebook, path)
    with serving(tmp_path / "work", tmp_path / "home", XDG_DATA_HOME=str(tmp_path / "data")) as lab:
        page = lab.open(browser.new_page(viewport={"width": 1200, "height": 1400}), path)
        lab.run_all(page)
        cards = page.locator(".jp-OutputArea-output .lk-options")
        cards.nth(1).wait_for()
        for card, option in ((0, 1), (1, 0)):
            cards.nth(card).locator("input").nth(option).check()
            page.locator(".jp-OutputArea-output .lk-commit").nth(card).click()
        page.wait_for_function(f"() => ({CHOSEN})().join() === '1,0'")
        for restart in (False, True):
            if restart:
                page.evaluate("() => window.jupyterapp.shell.currentWidget.sessionContext.restartKernel()")
            page.evaluate("() => window.jupyterapp.commands.execute('notebook:clear-all-cell-outputs')")
            page.wait_for_function(f"() => ({CHOSEN})().length === 0")
            page.evaluate(RUN_ALL)
            page.wait_for_function(f"() => ({CHOSEN})().join() === '1,0'")
        page.close()


def test_the_extension_has_the_version_of_the_kit() -> None:
    kit = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extension = json.loads((ROOT / "mlsys_labkit/_frontends/labextension/package.json").read_text("utf-8"))
    assert (extension["name"], extension["version"]) == (kit["name"], kit["version"])
