"""Length of a lab when a student opens it: screens in JupyterLab, and words before the first cell that shows something.

pytest -s tests/labkit/test_lab_length.py    # prints a row for each lab
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from mlsys_grading.lab import Cell, Lab, read_labs
from tests.conftest import ROOT
from tests.labkit.jupyterlab import serving

MOST_SCREENS = 20  # in a window of 1440 x 900 pixels, where a screen is what the notebook's panel shows at once
MOST_WORDS = 400  # two minutes at 200 words a minute, so that the first result comes within three
# Opens a notebook without a kernel, which takes longer to start than its page to be drawn.
OPEN = """async (path) => {
  await window.jupyterapp.restored;  // the layout of the last time would put the notebook aside
  const kernelPreference = { shouldStart: false, canStart: false, autoStartDefault: false };
  const panel = await window.jupyterapp.commands.execute("docmanager:open", { path, kernelPreference });
  await panel.context.ready;
  await panel.revealed;
  window.lab = panel;
}"""
CLOSE = "() => window.lab.close()"
# Every cell is drawn, also below the window.
WHOLE = ("@jupyterlab/notebook-extension/tracker.jupyterlab-settings", '{"windowingMode": "none"}')
HEIGHTS = """() => {
  const notebook = window.lab.content;
  const panel = notebook.node.querySelector('.jp-WindowedPanel-outer');
  const drawn = notebook.widgets.filter((cell) => cell.node.isConnected && cell.node.offsetHeight).length;
  return [drawn === notebook.widgets.length, panel.scrollHeight, panel.clientHeight];
}"""


@pytest.mark.browser
@pytest.mark.xdist_group("jupyterlab")
@pytest.mark.timeout(900)
def test_a_lab_has_at_most_twenty_screens(browser: Any, tmp_path: Path) -> None:
    notebooks, home = tmp_path / "labs", tmp_path / "home"
    notebooks.mkdir()
    for path in (ROOT / "labs").glob("lab*/lab*.ipynb"):
        shutil.copy(path, notebooks)
    settings = home / "settings" / WHOLE[0]
    settings.parent.mkdir(parents=True)
    settings.write_text(WHOLE[1])
    screens = {}
    with serving(notebooks, home) as running:
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.goto(f"{running.url}lab?token={running.token}")
        page.wait_for_function("() => window.jupyterapp?.commands.hasCommand('docmanager:open')")
        for path in sorted(notebooks.glob("*.ipynb")):
            page.evaluate(OPEN, path.name)
            page.wait_for_function(f"() => ({HEIGHTS})()[0]")
            height = 0
            while height != (height := page.evaluate(HEIGHTS)[1]):  # fonts and formulas change it as they come
                page.wait_for_timeout(500)
            screens[path.stem] = height / page.evaluate(HEIGHTS)[2]
            print(f"{path.stem:24}{screens[path.stem]:6.1f} screens", flush=True)
            page.evaluate(CLOSE)
        page.close()
    assert len(screens) == 11
    assert {name: count for name, count in screens.items() if count > MOST_SCREENS} == {}


def words_before_the_first_result(lab: Lab) -> int:
    """Count the words of the text before the first cell that a student can run and see something."""
    words = 0
    for cell in lab.cells:
        if cell.kind == "markdown":
            text = re.sub(r"\]\([^)]*\)", "]", cell.source)  # without the targets of links
            words += len(re.findall(r"[^\W_]+(?:['’.-][^\W_]+)*", text))
        elif shows_something(cell):
            return words
        elif cell.is_solution:
            break
    raise AssertionError(f"{lab.name} has no cell to run before its first task")


def shows_something(cell: Cell) -> bool:
    """Return whether a cell is open, is no set-up, prediction, task or test, and prints or ends in a value."""
    folded = cell.metadata.get("jupyter", {}).get("source_hidden")
    if folded or cell.metadata.get("tags") or cell.is_test or cell.is_solution or "lk.predict(" in cell.source:
        return False
    if "lk.progress(" in cell.source:
        return False
    last = cell.source.strip().splitlines()[-1]
    return "print(" in cell.source or re.fullmatch(r"[\w.]+(\(.*\))?", last) is not None


def test_the_first_result_comes_after_at_most_400_words() -> None:
    labs = read_labs(ROOT)
    assert len(labs) == 11
    words = {lab.name: words_before_the_first_result(lab) for lab in labs}
    print(words)
    assert {name: count for name, count in words.items() if count > MOST_WORDS} == {}
