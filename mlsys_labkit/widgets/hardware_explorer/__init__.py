"""Hardware explorer: any two properties of many machines against each other, and the roofs of two of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlsys_labkit._base.units import si
from mlsys_labkit.errors import LabkitError
from mlsys_labkit.specs.tables import Table
from mlsys_labkit.widgets.base import Kind, State, paragraph, table
from mlsys_labkit.widgets.hardware_explorer import model

_ROOF = ("peak", "bandwidth")


def hardware_explorer(
    data: Table,
    x: str = "year",
    y: str = "peak",
    *,
    first: str = "",
    second: str = "",
    columns: Sequence[str] | None = None,
) -> Any:
    """Plot the machines of ``data`` by two of their columns, with the trend, and compare two of them.

    ``x`` and ``y`` are numeric columns of the table ("year" is drawn on a linear axis, the rest on logarithmic ones);
    ``columns`` limits what is on offer; ``first`` and ``second`` are the rows compared at the start. If the table has
    columns ``peak`` (FLOP/s) and ``bandwidth`` (B/s), the two machines' rooflines stand beside.
    Raises LabkitError for a column or row that is not there, a column of words, or fewer than two machines.
    Reference: Williams, Waterman, Patterson, "Roofline", CACM 52(4), 2009.

    Example:
        >>> from mlsys_labkit.specs import tables
        >>> source = tables.Citation("datasheet", "https://example.org", "2026-01-01")
        >>> def row(name, year, peak):
        ...     values = {"year": tables.Value(year, source), "peak": tables.Value(peak, source)}
        ...     return tables.Row(name, values, frozenset(("year", "peak")))
        >>> pair = (row("A", 2020, 3e14), row("B", 2022, 1e15))
        >>> gpus = tables.Table("GPUs", {"year": "year", "peak": "FLOP/s"}, pair)
        >>> hardware_explorer(gpus)
        <Hardware explorer>
    """
    offered = [name for name, unit in data.columns.items() if unit != "text" and (not columns or name in columns)]
    for column in (x, y, *(columns or ())):
        if column not in offered:
            raise LabkitError(f"{data.title} has no numbers called {column!r}; choose among {', '.join(offered)}")
    if len(data.rows) < 2:
        raise LabkitError(f"{data.title} has {len(data.rows)} rows; two machines are needed to compare")
    names = [row.name for row in data.rows]
    chosen = [first or names[-2], second or names[-1]]
    for name in chosen:
        if name not in names:
            raise LabkitError(f"{data.title} has no row {name!r}; choose among {', '.join(names)}")
    kept = list(dict.fromkeys([*offered, *(name for name in _ROOF if name in data.columns)]))
    rows = [
        [row.name, *(float(row.values[name].value) if name in row.values else None for name in kept)]
        for row in data.rows
    ]
    return KIND.show(
        title=data.title,
        columns=[[name, name.replace("_", " "), data.columns[name]] for name in kept],
        offered=offered,
        rows=rows,
        x=x,
        y=y,
        first=chosen[0],
        second=chosen[1],
    )


def _said(value: float | None, unit: str) -> str:
    if value is None:
        return "–"
    return f"{value:.0f}" if unit == "year" else si(value, "" if unit == "1" else unit)


def _static(state: State) -> str:
    units = {name: unit for name, _, unit in state["columns"]}
    places = {name: at + 1 for at, (name, _, _) in enumerate(state["columns"])}
    shown = [state["x"], state["y"]]
    rows = [(row[0], *(_said(row[places[name]], units[name]) for name in shown)) for row in state["rows"]]
    points = [[row[places[name]] for name in shown] for row in state["rows"]]
    known = [(a, b) for a, b in points if a and b]
    found = model.trend([a for a, _ in known], [b for _, b in known], units[shown[0]] == "year") if known else None
    years = model.doubling(found[0]) if found and units[shown[0]] == "year" else None
    said = f" It {'doubles' if years > 0 else 'halves'} every {abs(years):.2g} years." if years else ""
    return paragraph(f"{state['title']}: {shown[1]} over {shown[0]}.{said}") + table(
        state["title"], ["machine", *shown], rows
    )


KIND = Kind("hardware_explorer", "Hardware explorer", _static)
