"""The stub in place of a solution: nbgrader's Python, or C++ in a cell of C++."""

from __future__ import annotations

from typing import Any

from nbgrader.preprocessors import ClearSolutions
from traitlets import Dict

from mlsys_grading.build.cpp import is_cpp
from mlsys_labkit.cuda.source.stub import CPP_STUB


class ClearCells(ClearSolutions):  # type: ignore[misc]  # nbgrader has no types
    """nbgrader's ClearSolutions, with the stub in the language of each cell and not of the notebook."""

    code_stub = Dict({"python": ClearSolutions.code_stub.default()["python"], "cpp": CPP_STUB}).tag(config=True)

    def preprocess_cell(self, cell: Any, resources: Any, cell_index: int) -> Any:
        language = "cpp" if cell.cell_type == "code" and is_cpp(cell.source) else "python"
        return super().preprocess_cell(cell, {**resources, "language": language}, cell_index)


def preprocessors() -> list[type]:
    """Return nbgrader's own steps of ``generate_assignment``, with ClearCells for ClearSolutions."""
    from nbgrader.converters import GenerateAssignment

    steps = GenerateAssignment.class_traits()["preprocessors"].default()
    return [ClearCells if step is ClearSolutions else step for step in steps]
