"""A notebook with every widget of the kit, saved by a real JupyterLab with the widgets' state, is small enough."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import nbformat
import pytest

from tests.labkit import every_widget
from tests.labkit.jupyterlab import serving

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("jupyterlab"), pytest.mark.timeout(900)]

LIMIT_BYTES = 1_000_000  # what may be handed in
MAKE = "every_widget.every()[{name!r}]()"
COACH = [
    'lk.predict("warmup_end")',
    'lk.predict("costs", "a")',
    'lk.hint("warmup_end")',
    'with lk.picture("what to see"):\n    raise NotImplementedError',
    "lk.progress()",
]
SAVE = """async () => {
  const { context } = window.jupyterapp.shell.currentWidget;
  await window.jupyterapp.commands.execute("docmanager:save");
  return context.model.dirty;
}"""


def test_a_notebook_with_every_widget_is_under_a_megabyte(browser: Any, tmp_path: Path) -> None:
    names = list(every_widget.every())
    opening = "%load_ext mlsys_labkit\nimport mlsys_labkit as lk\nfrom tests.labkit import every_widget"
    sources = [opening, *(MAKE.format(name=name) for name in names), *COACH]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(one) for one in sources], metadata=kernel)
    path = tmp_path / "work" / "lab00_your_machine.ipynb"
    path.parent.mkdir()
    nbformat.write(notebook, path)
    settings = tmp_path / "home" / "settings"
    manager = settings / "@jupyter-widgets" / "jupyterlab-manager"
    manager.mkdir(parents=True)
    (manager / "plugin.jupyterlab-settings").write_text(json.dumps({"saveState": True}))
    with serving(path.parent, tmp_path / "home", JUPYTERLAB_SETTINGS_DIR=str(settings)) as lab:
        page = lab.open(browser.new_page(viewport={"width": 1200, "height": 900}), path)
        lab.run_all(page)
        page.wait_for_function("count => document.querySelectorAll('section.lk').length >= count", arg=len(names))
        assert page.evaluate(SAVE) is False
        page.close()
    saved = nbformat.read(path, as_version=4)
    failed = [out.evalue for cell in saved.cells for out in cell.get("outputs", ()) if out.output_type == "error"]
    assert failed == []
    models = saved.metadata.widgets["application/vnd.jupyter.widget-state+json"]["state"].values()
    kinds = {model["state"]["_anywidget_id"].rpartition(".")[2] for model in models if "_esm" in model["state"]}
    assert len(kinds) == len(every_widget.folders()), "each kind is there, with its state"
    size = path.stat().st_size
    print(f"\n{len(names)} widgets of {len(kinds)} kinds and {len(COACH)} of the coach: {size:,} bytes")
    assert size < LIMIT_BYTES
