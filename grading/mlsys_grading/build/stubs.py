"""What stands in place of a solution: nbgrader's Python, or C++ in a cell of C++."""

from __future__ import annotations

from typing import Any

from nbgrader.preprocessors import ClearSolutions
from traitlets import Dict

from mlsys_grading.build.cpp import is_cpp
from mlsys_labkit.cuda.source.stub import CPP_STUB

__all__ = ["ClearCells", "preprocessors"]


class ClearCells(ClearSolutions):
    """nbgrader's ClearSolutions, which knows one language a notebook, with the stub in the language of the cell."""

    code_stub = Dict({"python": ClearSolutions.code_stub.default()["python"], "cpp": CPP_STUB}).tag(config=True)

    def preprocess_cell(self, cell: Any, resources: Any, cell_index: int) -> Any:
        language = "cpp" if cell.cell_type == "code" and is_cpp(cell.source) else "python"
        return super().preprocess_cell(cell, {**resources, "language": language}, cell_index)


def preprocessors() -> list[type]:
    """nbgrader's own steps of ``generate_assignment`` with this one in its place."""
    from nbgrader.converters import GenerateAssignment

    steps = GenerateAssignment.class_traits()["preprocessors"].default()
    return [ClearCells if step is ClearSolutions else step for step in steps]
