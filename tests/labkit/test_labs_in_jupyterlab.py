"""The eleven labs in a real JupyterLab, cell by cell as a student runs them: empty, and solved."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import jupytext
import nbformat
import pytest

from tests.conftest import ROOT
from tests.labkit.jupyterlab import Lab, serving

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("jupyterlab"), pytest.mark.timeout(900)]
LABS = sorted(path.name for path in (ROOT / "labs").glob("lab*"))
IN_THE_SUITE = ("lab00_your_machine", "student")

# A student's tasks fail where they are not done: one cell that does must not keep the others from running.
STEP = """async (index) => {
  const notebook = window.jupyterapp.shell.currentWidget.content;
  notebook.activeCellIndex = index;
  await window.jupyterapp.commands.execute('notebook:run-cell');
}"""
CELLS = """() => window.jupyterapp.shell.currentWidget.content.widgets
  .map((cell, index) => [cell.model.type, index]).filter(([type]) => type === 'code').map(([, index]) => index)"""
# Each output of the cell: [what it is, what is wrong with it]; nothing when all of it is drawn and fits.
BAD = """(index) => {
  const cell = window.jupyterapp.shell.currentWidget.content.widgets[index];
  const nodes = [...cell.node.querySelectorAll('.jp-OutputArea-output')], models = cell.model.outputs.toJSON();
  const bad = [];
  nodes.forEach((node) => {
    const text = node.textContent.slice(0, 80);
    if (node.scrollWidth > node.clientWidth + 1) bad.push(['wider than its cell', node.scrollWidth, text]);
    if (!node.childElementCount || !node.getBoundingClientRect().height) bad.push(['empty', text]);
    if (/Loading widget|Error displaying widget|Error creating widget/.test(text)) bad.push(['no widget', text]);
  });
  const count = (mime) => models.filter((one) => one.data && mime in one.data).length;
  const drawn = (selector) => cell.node.querySelectorAll(`.jp-OutputArea-output ${selector}`).length;
  const widgets = count('application/vnd.jupyter.widget-view+json'), figures = count('application/vnd.plotly.v1+json');
  if (drawn('section.lk') < widgets) bad.push(['widgets drawn', drawn('section.lk'), 'of', widgets]);
  if (drawn('.main-svg') < figures) bad.push(['figures drawn', drawn('.main-svg'), 'of', figures]);
  return bad;
}"""
FAILED = """() => window.jupyterapp.shell.currentWidget.content.widgets.filter((cell) => cell.model.type === 'code')
  .flatMap((cell) => cell.model.outputs.toJSON()).filter((one) => one.output_type === 'error')
  .map((one) => `${one.ename}: ${one.evalue.slice(0, 200)}`)"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, browser: Any) -> Iterator[Lab]:
    folder = tmp_path_factory.mktemp("labs")
    notebooks = folder / "notebooks"
    for name in LABS:
        for kind in ("student", "solved"):
            (notebooks / kind / name).mkdir(parents=True)
        shutil.copy(ROOT / "labs" / name / f"{name}.ipynb", notebooks / "student" / name)
        solved = jupytext.read(ROOT / "solutions" / name / f"{name}.py")
        nbformat.write(solved, notebooks / "solved" / name / f"{name}.ipynb")
    bare = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("1 + 1")])
    bare.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(bare, notebooks / "bare.ipynb")
    with serving(notebooks, folder / "home") as running:
        page = running.open(browser.new_page(viewport={"width": 1300, "height": 900}), notebooks / "bare.ipynb")
        running.run_all(page)
        page.close()
        running.usual.update(running.troubles)  # what JupyterLab and its extensions complain of without us
        yield running


def cases() -> Iterator[Any]:
    for name in LABS:
        for kind in ("student", "solved"):
            usual_run = (name, kind) == IN_THE_SUITE
            yield pytest.param(name, kind, id=f"{name}-{kind}", marks=[] if usual_run else pytest.mark.soak)


@pytest.mark.parametrize(("name", "kind"), list(cases()))
def test_a_lab_runs_draws_and_fits(lab: Lab, browser: Any, name: str, kind: str) -> None:
    from playwright.sync_api import TimeoutError

    lab.troubles.clear()
    page = browser.new_page(viewport={"width": 1300, "height": 900})
    try:
        lab.open(page, lab.folder / kind / name / f"{name}.ipynb")
        for index in page.evaluate(CELLS):
            page.evaluate(STEP, index)
            try:
                page.wait_for_function(f"index => ({BAD})(index).length === 0", arg=index)
            except TimeoutError:
                assert page.evaluate(BAD, index) == [], f"cell {index}"
        if kind == "solved":
            assert page.evaluate(FAILED) == []
        assert lab.complaints() == set()
        page.evaluate("() => window.jupyterapp.shell.currentWidget.sessionContext.shutdown()")
    finally:
        page.close()
