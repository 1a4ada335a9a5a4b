"""Number-format explorer: drag a number, see its bits, its error and its neighbours in any format."""

from __future__ import annotations

import math
from typing import Any

from mlsys_labkit.errors import LabkitError
from mlsys_labkit.formats import FORMATS, BlockFormat
from mlsys_labkit.widgets.base import Kind, State, paragraph, table
from mlsys_labkit.widgets.number_formats import model

SHOWN = {name: model.plain(made) for name, made in FORMATS.items() if not isinstance(made, BlockFormat)}


def number_formats(value: float = 0.1, format: str = "fp8_e4m3") -> Any:
    """Explore how the number ``value`` is stored in ``format``, one of the formats of ``mlsys_labkit.formats``.

    Raises LabkitError for a number that is not finite and for a format that is not there.

    Example:
        >>> number_formats(3.14159, "bf16")
        <Number-format explorer>
    """
    if format not in SHOWN:
        raise LabkitError(f"format is one of {', '.join(SHOWN)}; got {format!r}")
    if not math.isfinite(value):
        raise LabkitError(f"value must be a finite number, got {value}")
    return KIND.show(value=float(value), format=format, formats=list(SHOWN.values()))


def _static(state: State) -> str:
    value = state["value"]
    rows = []
    for format_ in state["formats"]:
        stored = model.decode(format_, model.nearest(format_, value))
        below, above = model.neighbours(format_, value)
        numbers = (f"{stored:.7g}", f"{stored - value:.2g}", f"{below:.7g}", f"{above:.7g}")
        rows.append([format_["name"], format_["bits"], *numbers])
    return paragraph(f"The number {value:.7g} in every format.") + table(
        "Nearest number, error and neighbours", ["format", "bits", "stored", "error", "next below", "next above"], rows
    )


KIND = Kind("number_formats", "Number-format explorer", _static)
