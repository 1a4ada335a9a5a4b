"""Accelerator map: the fixed parts of each machine, and the effort to change the others."""

from __future__ import annotations

from typing import Any

from mlsys_labkit.errors import LabkitError
from mlsys_labkit.widgets.accelerator_map import model
from mlsys_labkit.widgets.accelerator_map.kinds import CHANGES, KINDS, TAKES
from mlsys_labkit.widgets.base import Kind, State, paragraph, table


def accelerator_map(change: str = "a new operator") -> Any:
    """Compare what ``change`` takes on kinds of accelerators: an instruction, a kernel, a compilation, ..., a new chip.

    Raises LabkitError for a change that is not on the list.
    Reference: Jouppi et al., "A Domain-Specific Architecture for Deep Neural Networks", CACM 61(9), 2018.

    Example:
        >>> accelerator_map("a new number format")
        <Accelerator map>
    """
    if change not in CHANGES:
        raise LabkitError(f"no change {change!r}; choose among {', '.join(CHANGES)}")
    kinds = [[name, words, [list(level) for level in levels]] for name, words, levels in KINDS]
    return KIND.show(kinds=kinds, changes=list(CHANGES), takes=list(TAKES), change=CHANGES.index(change))


def _static(state: State) -> str:
    change, kinds = state["change"], state["kinds"]
    levels = [[level for level, _ in each] for _, _, each in kinds]
    rows = [
        (kinds[at][0], state["takes"][levels[at][change]], kinds[at][2][change][1])
        for at in model.order(levels, change)
    ]
    return paragraph(f"What it takes: {state['changes'][change]}.") + table(
        "From the easiest to the hardest", ["kind", "takes", "because"], rows
    )


KIND = Kind("accelerator_map", "Accelerator map", _static)
