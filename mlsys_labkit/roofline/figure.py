"""The roofline as a plotly figure, for zooming and hovering. It shows the same ceilings and points as the SVG view."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from mlsys_labkit._base.light_dark_colours import COLOURS, FIGURE_GRID
from mlsys_labkit._base.units import plain, si
from mlsys_labkit.device import VIRTUAL_LABEL
from mlsys_labkit.errors import require
from mlsys_labkit.roofline.layout import flat_start, slope_start, view
from mlsys_labkit.roofline.roof import Roof
from mlsys_labkit.work import Work

COMPUTE, MEMORY, POINT, ABOVE_ROOF = (
    COLOURS[f"roofline-{part}"].figure for part in ("compute-ceiling", "memory-ceiling", "point", "above-roof")
)


def figure(
    roofline: Roof, works: Sequence[Work] = (), *, dtypes: Sequence[str] | None = None, level: str = "dram"
) -> Any:
    """Return a ``plotly.graph_objects.Figure``; arguments as for ``roofline.svg.draw``.

    Raises:
        MissingExtraError: plotly is not installed.

    Example:
        >>> from mlsys_labkit.roofline import Roofline
        >>> figure(Roofline.from_spec("t4")).layout.xaxis.type
        'log'
    """
    go = require("plotly.graph_objects", "widgets")
    shown = view(roofline, works, dtypes, level)
    chart = go.Figure()
    top = max(c.value for c in shown.compute)
    for ceiling in (*shown.memory, *shown.compute):
        if ceiling.kind == "memory":
            x = [10 ** slope_start(ceiling, shown), min(top / ceiling.value, 10 ** shown.x[1])]
        else:
            x = [10 ** flat_start(ceiling, shown), 10 ** shown.x[1]]
        chart.add_scatter(
            x=x,
            y=[ceiling.attainable(value) for value in x],
            mode="lines",
            name=f"{ceiling.label} {si(ceiling.value, ceiling.unit)}, {ceiling.origin}",
            line={
                "color": COMPUTE if ceiling.kind == "compute" else MEMORY,
                "dash": "dash" if ceiling.origin == "datasheet" else "solid",
                "width": 2,
            },
            hovertext=ceiling.source,
            hoverinfo="name+text",
        )
    for placed, speed in shown.points:
        crowded = any(1 < other.intensity / placed.intensity < 5 for other, _ in shown.points)
        timed = placed.achieved_flops_per_second is not None
        chart.add_scatter(
            x=[placed.intensity],
            y=[speed],
            mode="markers+text",
            name=placed.work.name or "work",
            text=[placed.work.name or "work"],
            textposition="top left" if crowded else "bottom right",
            hovertext=f"{placed.verdict}<br>{plain(placed.intensity)} FLOP/B, {si(speed, 'FLOP/s')}",
            hoverinfo="text",
            showlegend=False,
            marker={
                "size": 12,
                "color": ABOVE_ROOF if placed.above_roof else POINT,
                "symbol": "x" if placed.above_roof else "circle" if timed else "diamond-open",
            },
        )
    title = f"{roofline.device.name}{f' ({VIRTUAL_LABEL})' if roofline.virtual else ''}"
    chart.update_layout(
        title=title,
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        legend={"orientation": "h", "y": -0.32, "yanchor": "top"},  # below the axis title at the height of a cell
        margin={"t": 48, "r": 16},
    )
    grid = {"type": "log", "gridcolor": FIGURE_GRID}
    decades = range(math.floor(shown.y[0]), math.ceil(shown.y[1]))
    names = [si(10.0**decade, "").strip() for decade in decades]
    chart.update_xaxes(
        title="arithmetic intensity (FLOP/B)", range=list(shown.x), dtick=1, exponentformat="none", **grid
    )
    chart.update_yaxes(
        title="FLOP/s", range=list(shown.y), tickvals=[10.0**decade for decade in decades], ticktext=names, **grid
    )
    return chart
