"""The notebooks made from a lab's source, byte for byte the same each time.

The student's notebook goes through nbgrader's own preprocessors in the order of ``nbgrader generate_assignment``, so
that an instructor who releases the source with nbgrader hands out the same cells, locks and checksums. One differs:
a stub in a cell of C++ is C++.
Reference: https://nbgrader.readthedocs.io/en/stable/user_guide/creating_and_grading_assignments.html
"""

from __future__ import annotations

import copy
import re
from typing import TYPE_CHECKING, Any

from mlsys_grading.build.markers import HIDDEN, without
from mlsys_grading.lab import Cell, Lab
from mlsys_labkit.errors import LabkitError

if TYPE_CHECKING:
    from nbformat import NotebookNode

_OWN = "mlsys_grading"  # our namespace in a notebook's metadata
_LONGEST_OPEN_TEST = 4  # lines: with more of them open, the labs are half as long again

# Written out, because what a kernel reports differs between machines.
METADATA = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {
        "codemirror_mode": {"name": "ipython", "version": 3},
        "file_extension": ".py",
        "mimetype": "text/x-python",
        "name": "python",
        "nbconvert_exporter": "python",
        "pygments_lexer": "ipython3",
    },
}


def source_notebook(lab: Lab) -> NotebookNode:
    """Return the lab with its solutions and hidden tests: nbgrader's source, and the notebook that ``run`` executes."""
    from nbformat import v4

    own = {_OWN: dict(lab.metadata[_OWN])} if _OWN in lab.metadata else {}  # for example, limits
    notebook: NotebookNode = v4.new_notebook(metadata=copy.deepcopy(METADATA | own))  # type: ignore[no-untyped-call]
    make: dict[str, Any] = {"code": v4.new_code_cell, "markdown": v4.new_markdown_cell, "raw": v4.new_raw_cell}
    notebook.cells = [
        make[cell.kind](cell.source, id=cell_id(lab, cell), metadata=_metadata(cell)) for cell in lab.cells
    ]
    return notebook


def student_notebook(lab: Lab) -> NotebookNode:
    """Return the lab as students get it: stubs for solutions, no hidden tests, locks and checksums."""
    from nbgrader import preprocessors as steps

    from mlsys_grading.build.stubs import ClearCells

    first = (steps.LockCells, ClearCells, steps.ClearOutput, steps.CheckCellMetadata, steps.ComputeChecksums)
    then = (steps.ClearHiddenTests, steps.ClearMarkScheme, steps.ComputeChecksums, steps.CheckCellMetadata)
    return _through(lab, *first, *then)


def unsolved_notebook(lab: Lab) -> NotebookNode:
    """Return the notebook of a student who wrote nothing: stubs for solutions, hidden tests in their places."""
    from nbgrader.preprocessors import CheckCellMetadata

    from mlsys_grading.build.stubs import ClearCells

    return _through(lab, ClearCells, CheckCellMetadata)


def dumps(notebook: NotebookNode) -> str:
    """Return the notebook file's text: validated, sorted keys, one trailing newline."""
    import nbformat

    nbformat.validate(notebook)
    return str(nbformat.writes(notebook, version=4)).rstrip("\n") + "\n"  # type: ignore[no-untyped-call]


def cell_id(lab: Lab, cell: Cell) -> str:
    """Return a cell's id: the author's ``grade_id``, or one made from its place (``lab01-003``).

    nbformat allows 64 characters out of ``A-Za-z0-9-_``; anything random would make two builds differ.
    """
    if cell.grade_id:
        return re.sub(r"[^A-Za-z0-9_-]", "-", cell.grade_id)[:64]
    return f"{lab.name.split('_')[0]}-{cell.index:03d}"


def _metadata(cell: Cell) -> dict[str, Any]:
    """Return a cell's metadata; a long test cell is folded, unless its author says whether its source is hidden.

    JupyterLab shows the first line of a folded cell, and a click opens it.
    """
    metadata = copy.deepcopy(dict(cell.metadata))
    visible = [line for line in without(cell.source, HIDDEN).splitlines() if line.strip() and line[:4] != "### "]
    if cell.kind == "code" and cell.is_test and len(visible) > _LONGEST_OPEN_TEST:
        metadata.setdefault("jupyter", {}).setdefault("source_hidden", True)
    return metadata


def _through(lab: Lab, *steps: type) -> NotebookNode:
    notebook, resources = source_notebook(lab), dict[str, Any]()
    for step in steps:
        try:
            notebook, resources = step()(notebook, resources)
        except Exception as error:  # nbgrader raises RuntimeError, KeyError, ValidationError, ... for a bad notebook
            reason = " ".join(str(error).split())
            raise LabkitError(f"{lab.where(lab.path)}: nbgrader's {step.__name__} refuses it: {reason}") from None
    return notebook
