"""Rules for the notebook as a whole: header, title, parameters, points."""

from __future__ import annotations

from collections.abc import Iterator

from mlsys_grading.build.finding import Objection
from mlsys_grading.build.python import parse, stored
from mlsys_grading.lab import Lab

_KERNEL = "kernelspec with display_name 'Python 3 (ipykernel)', language python, name python3"
_TITLE = "start with a Markdown cell '# Title' that has objectives, and a table of time, difficulty and hardware"
_PARAMETERS = {"smoke", "seed"}
_POINTS = 100


def header(lab: Lab) -> Iterator[Objection]:
    """Require a YAML header, which jupytext needs to keep nbgrader's metadata, and papermill to find the kernel."""
    kernel = lab.metadata.get("kernelspec")
    if not kernel:
        yield lab.path, 1, "there is no kernelspec", f"start it with a YAML header: {_KERNEL}"
    elif kernel.get("name") != "python3":
        yield lab.path, 1, f"the kernel is {kernel.get('name')!r}", "write name: python3"


def title(lab: Lab) -> Iterator[Objection]:
    """Require a title in the first cell, which the table of labs shows too."""
    first = lab.cells[0]
    if first.kind != "markdown" or not first.source.startswith("# "):
        yield first, 1, "the first cell is no title", _TITLE


def parameters(lab: Lab) -> Iterator[Objection]:
    """Require exactly one cell tagged ``parameters``, after which ``labkit run`` sets ``smoke`` and ``seed``."""
    cells = [cell for cell in lab.cells if "parameters" in cell.tags and cell.kind == "code"]
    if len(cells) != 1:
        instead = 'write one cell  # %% tags=["parameters"]  with  smoke = False  and  seed = 0'
        yield lab.path, cells[1].line if cells else 1, f"{len(cells)} cells are tagged parameters", instead
    elif missing := sorted(_PARAMETERS - stored(parse(cells[0].source))):
        yield cells[0], 1, f"{', '.join(missing)} is not set", "write  smoke = False  and  seed = 0"


def points(lab: Lab) -> Iterator[Objection]:
    """Require the same number of points in every lab."""
    if lab.points != _POINTS:
        parts = ", ".join(f"{task.name} {task.points:g}" for task in lab.tasks)
        yield lab.path, 1, f"they sum to {lab.points:g} ({parts})", f"make it {_POINTS}"
