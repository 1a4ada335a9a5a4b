"""Energy ladder: the energy to fetch a word from each level, and the uses at which computing costs as much."""

from __future__ import annotations

from typing import Any

from mlsys_labkit.errors import LabkitError
from mlsys_labkit.specs.tables import Table
from mlsys_labkit.widgets.base import Kind, State, paragraph, table
from mlsys_labkit.widgets.energy_ladder import model


def energy_ladder(data: Table, operation: str = "", place: str = "", *, uses: int = 1) -> Any:
    """Fetch words from the rungs of ``data``, compute with them, and see where the energy goes.

    ``data`` has columns ``energy`` (J), ``bits`` (that this energy moves or computes) and ``kind`` ("arithmetic", or
    where words come from). ``operation`` and ``place`` are rows to begin with, by default the last of arithmetic and
    the one that takes most; ``uses`` is how often each word is used.
    Raises LabkitError for a table without these columns, a row that is not there, or uses outside 1 to 10,000.
    Reference: Horowitz, "Computing's energy problem (and what we can do about it)", ISSCC 2014.

    Example:
        >>> from mlsys_labkit.specs import tables
        >>> source = tables.Citation("Horowitz, ISSCC 2014", "https://doi.org/10.1109/ISSCC.2014.6757323", "2014-02-09")
        >>> def row(name, joules, bits, kind):
        ...     values = {"energy": joules, "bits": bits, "kind": kind}
        ...     return tables.Row(name, {k: tables.Value(v, source) for k, v in values.items()}, frozenset(values))
        >>> units = {"energy": "J", "bits": "bit", "kind": "text"}
        >>> rungs = (row("multiply, FP32", 3.7e-12, 32.0, "arithmetic"), row("DRAM", 1.3e-9, 64.0, "memory"))
        >>> energy_ladder(tables.Table("Energy", units, rungs))
        <Energy ladder>
    """
    if missing := {"energy", "bits", "kind"} - set(data.columns):
        raise LabkitError(
            f"{data.title} has no column {', '.join(sorted(missing))}; an energy ladder needs energy, bits and kind"
        )
    rungs: list[tuple[str, float, float, str]] = [
        (row.name, float(row.energy.value), float(row.bits.value), str(row.kind.value))
        for row in data.rows
        if row.energy and row.bits and row.kind
    ]
    computed = [name for name, _, _, kind in rungs if kind == "arithmetic"]
    places = [
        name for _, name in sorted((joules / bits, name) for name, joules, bits, kind in rungs if kind != "arithmetic")
    ]
    if not computed or not places:
        raise LabkitError(f"{data.title} needs a row of kind arithmetic and one of another kind")
    chosen = [operation or computed[-1], place or places[-1]]
    for name, among in zip(chosen, (computed, places), strict=True):
        if name not in among:
            raise LabkitError(f"{data.title} has no {name!r} there; choose among {', '.join(among)}")
    if not 1 <= uses <= 10_000:
        raise LabkitError(f"uses is 1 to 10,000; got {uses!r}")
    return KIND.show(
        title=data.title, rungs=[list(rung) for rung in rungs], operation=chosen[0], place=chosen[1], uses=int(uses)
    )


def _static(state: State) -> str:
    rungs = {name: (joules, bits, kind) for name, joules, bits, kind in state["rungs"]}
    arithmetic, word_bits, _ = rungs[state["operation"]]
    rows = []
    for name, (joules, bits, kind) in rungs.items():
        if kind != "arithmetic":
            move = model.word(joules, bits, word_bits)
            rows.append((name, f"{move * 1e12:.3g} pJ", f"{model.balance(arithmetic, move):.3g}"))
    said = f"{state['operation']} takes {arithmetic * 1e12:.3g} pJ."
    return paragraph(said) + table(
        f"Fetching a word of {word_bits:g} bits", ["from", "takes", "operations of the same energy"], rows
    )


KIND = Kind("energy_ladder", "Energy ladder", _static)
