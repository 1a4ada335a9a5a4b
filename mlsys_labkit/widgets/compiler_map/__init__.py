"""Compiler map: light up the ways from a framework to a machine."""

from __future__ import annotations

from typing import Any

from mlsys_labkit.errors import LabkitError
from mlsys_labkit.widgets.base import Kind, State, paragraph, table
from mlsys_labkit.widgets.compiler_map import model
from mlsys_labkit.widgets.compiler_map.graph import COLUMNS, EDGES


def compiler_map(framework: str = "PyTorch", machine: str = "NVIDIA GPU") -> Any:
    """Show the translators between ``framework`` and ``machine``, and every way through them.

    Raises LabkitError for names that are not on the map.
    Reference: Ansel et al., "PyTorch 2", ASPLOS 2024; Lattner et al., "MLIR", arXiv:2002.11054; the tools' own manuals.

    Example:
        >>> compiler_map("JAX", "TPU")
        <Compiler map>
    """
    starts, ends = COLUMNS[0][1], COLUMNS[-1][1]
    if framework not in starts or machine not in ends:
        raise LabkitError(
            f"the map leads from {', '.join(starts)} to {', '.join(ends)}; got {framework!r} and {machine!r}"
        )
    columns = [[title, list(names)] for title, names in COLUMNS]
    return KIND.show(columns=columns, edges=[list(edge) for edge in EDGES], start=framework, end=machine)


def _static(state: State) -> str:
    found = model.ways(state["edges"], state["start"], state["end"])
    rows = [(at + 1, " → ".join(way)) for at, way in enumerate(found)]
    return paragraph(f"{len(found)} ways from {state['start']} to {state['end']}.") + table(
        "Ways", ["", "through"], rows
    )


KIND = Kind("compiler_map", "Compiler map", _static)
