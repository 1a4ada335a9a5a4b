"""Tests of Colab: a lab's notebook alone, unedited, in Colab's Jupyter; and the first cell beside an installed kit.

Colab itself cannot be run. Its versions are those that it publishes (googlecolab/backend-info, June 2026); its Jupyter
is older than ours by years, which is what breaks.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jupytext
import nbformat
import pytest
from nbclient import NotebookClient

pytestmark = pytest.mark.xdist_group("packaging")

COLAB = (
    "ipython==7.34.0",
    "ipykernel==6.17.1",
    "jupyter_client==7.4.9",
    "traitlets==5.7.1",
    "tornado==6.5.1",
    "ipywidgets==7.7.1",
    "anywidget==0.9.21",
    "plotly==5.24.1",
    "numpy==2.0.2",
    "pyzmq==26.2.1",
    "pip==24.1.2",
)
# What google.colab.output does for widgets; it is loaded before the first cell. Once asked, it tells the page of every
# widget that is *displayed* where to find what draws it; a cell's plain result passes it by.
STAND_IN = """
import os
import types
from IPython import get_ipython

VIEW = "application/vnd.jupyter.widget-view+json"
_widgets = types.SimpleNamespace(_installed_url=None)

def enable_custom_widget_manager():
    _widgets._installed_url = "https://colab.example/manager.js"
    get_ipython().display_pub.register_hook(tell)
    with open(os.environ["COLAB_SAID"], "a") as file:
        file.write("widget manager\\n")

def tell(message):
    content = message["content"]
    if VIEW in content.get("data", {}):
        content["metadata"][VIEW] = {"colab": {"custom_widget_manager": {"url": _widgets._installed_url}}}
    return message
"""
VIEW = "application/vnd.jupyter.widget-view+json"


def notebooks(root: Path) -> list[Path]:
    return sorted((root / "labs").glob("*/*.ipynb"))


def code_cells(path: Path) -> list[dict[str, Any]]:
    return [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]


def install_cell(root: Path) -> str:
    """Return the first code cell, which is the same in each lab."""
    first = {"".join(code_cells(path)[0]["source"]) for path in notebooks(root)}
    assert len(first) == 1
    return first.pop()


def test_each_lab_starts_with_the_same_cell(root: Path) -> None:
    assert len(notebooks(root)) == 11
    install_cell(root)
    for path in notebooks(root):
        first, second, *_ = code_cells(path)
        # folded, and neither graded nor checked for changes
        assert first["metadata"] == {"tags": ["install"], "jupyter": {"source_hidden": True}}
        assert "".join(second["source"]).startswith("%load_ext mlsys_labkit\n")


def run_install_cell(root: Path, monkeypatch: pytest.MonkeyPatch, is_there: bool) -> list[tuple[str, str]]:
    """Run the first cell and return the magics that it calls."""
    asked: list[tuple[str, str]] = []
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object() if is_there else None)
    shell = SimpleNamespace(run_line_magic=lambda *magic: asked.append(magic))
    exec(install_cell(root), {"get_ipython": lambda: shell})
    return asked


def test_install_cell_does_nothing_beside_the_kit(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_install_cell(root, monkeypatch, is_there=True) == []


def test_install_cell_installs_the_kit_alone(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install the kit alone: an extra would replace the ipywidgets that Colab has loaded, and require a restart."""
    assert run_install_cell(root, monkeypatch, is_there=False) == [("pip", "install -q mlsys-labkit")]


def interpreter() -> str:
    """Return Colab's Python if this machine has one, else ours."""
    places = [shutil.which("python3.12"), *map(str, Path.home().glob(".pyenv/versions/3.12*/bin/python3.12"))]
    for place in filter(None, places):
        if subprocess.run([place, "-c", "import ensurepip"], capture_output=True).returncode == 0:
            return place
    return sys.executable


@pytest.fixture(scope="module")
def colab(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_colab(root, tmp_path_factory.mktemp("colab") / "env", interpreter(), COLAB)


def make_colab(root: Path, place: Path, python: str, versions: Sequence[str]) -> Path:
    """Make an environment like Colab's, with a kernel called ``colab``, and the kit's wheel in ``index``."""
    subprocess.run([python, "-m", "venv", "--without-pip", place], check=True)
    pip = [sys.executable, "-m", "pip", "--python", str(place / "bin/python"), "install", "-q", "--no-compile"]
    done = subprocess.run([*pip, *versions], capture_output=True, text=True)
    if done.returncode:  # nothing of ours has a part in it
        pytest.skip(f"needs Colab's Jupyter from the package index: {done.stderr.strip().splitlines()[-1]}")
    (site,) = place.glob("lib/python3*/site-packages")
    (site / "google/colab").mkdir(parents=True)
    (site / "google/colab/__init__.py").write_text("")
    (site / "google/colab/output.py").write_text(STAND_IN)
    (site / "colab.pth").write_text("import google.colab.output\n")
    kernel = {"argv": [str(place / "bin/python"), "-m", "ipykernel_launcher", "-f", "{connection_file}"]}
    spec = place / "share/jupyter/kernels/colab/kernel.json"
    spec.parent.mkdir(parents=True, exist_ok=True)
    spec.write_text(json.dumps(kernel | {"display_name": "Colab", "language": "python"}))
    wheel = [sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", str(place / "index"), str(root)]
    built = subprocess.run(wheel, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    return place


def packages(place: Path) -> set[str]:
    (site,) = place.glob("lib/python3*/site-packages")
    return {f"{one.name}=={one.version}" for one in metadata.distributions(path=[str(site)])}


def run_on_colab(place: Path, notebook: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Execute the notebook in an empty folder, as on Colab, and return its code cells with their outputs."""
    folder.mkdir()
    monkeypatch.delenv("PYTHONPATH", raising=False)  # it may lead to a kit before one is installed
    monkeypatch.setenv("JUPYTER_PATH", str(place / "share/jupyter"))
    monkeypatch.setenv("COLAB_SAID", str(folder / "said"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(place / "index"))
    resources = {"metadata": {"path": str(folder)}}
    NotebookClient(notebook, kernel_name="colab", timeout=600, startup_timeout=600, resources=resources).execute()
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def until_the_first_task(path: Path) -> Any:
    """Return the student's notebook up to the first cell for an answer."""
    notebook = nbformat.read(path, as_version=4)
    first = next(n for n, cell in enumerate(notebook.cells) if cell.metadata.get("nbgrader", {}).get("solution"))
    notebook.cells = notebook.cells[:first]
    return notebook


@pytest.mark.timeout(1200)  # the environment is made first, on a busy machine in minutes
def test_a_lab_starts_unedited(root: Path, colab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = packages(colab)
    notebook = until_the_first_task(root / "labs/lab00_your_machine/lab00_your_machine.ipynb")
    assert notebook.cells[-1].source.startswith("lk.predict(")
    notebook.cells += [
        nbformat.v4.new_code_cell(source)
        for source in (
            "import plotly.graph_objects as go\nlk.show(go.Figure(go.Bar(y=[1, 4])), summary='Four times the first.')",
            "with lk.trace_memory() as trace:\n    kept = np.ones(100_000)\nprint(trace)",
            "1 / 0",
        )
    ]
    notebook.cells[-1].metadata.tags = ["raises-exception"]
    cells = run_on_colab(colab, notebook, tmp_path / "content", monkeypatch)
    *_, prediction, chart, traced, failing = cells
    assert {name.partition("==")[0] for name in packages(colab) ^ before} == {"mlsys-labkit"}
    assert (tmp_path / "content/said").read_text() == "widget manager\n"  # once, by the first widget
    (card,) = (output for output in prediction.outputs if VIEW in output.get("data", {}))
    assert card.metadata[VIEW]["colab"]["custom_widget_manager"]["url"]  # or Colab's page would not draw it
    assert "plotly" in "".join(output["data"].get("text/html", "") for output in chart.outputs)
    assert f"In[{traced.execution_count}]:2" in "".join(output.get("text", "") for output in traced.outputs)
    assert failing.outputs[0].ename == "ZeroDivisionError"
    assert not [path for path in (tmp_path / "content").iterdir() if path.name not in {"said", ".labkit"}]


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_every_solution_runs_on_colab(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use our Python, because a CPU build of torch exists for it; torch and triton are not Colab's."""
    versions = (
        *COLAB,
        f"torch=={metadata.version('torch')}",
        "triton>=3.6",
        "cloudpickle==3.1.2",
        "safetensors==0.7.0",
    )
    place = make_colab(root, tmp_path / "env", sys.executable, versions)
    for path in notebooks(root):
        solved = jupytext.read(root / f"solutions/{path.stem}/{path.stem}.py", fmt="py:percent")
        cells = run_on_colab(place, solved, tmp_path / path.stem, monkeypatch)
        views = [output for cell in cells for output in cell.outputs if VIEW in output.get("data", {})]
        assert views, path.stem
        assert all(output.metadata[VIEW]["colab"] for output in views), path.stem
