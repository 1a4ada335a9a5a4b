"""The roofline as a plotly figure, for zooming and hovering. It shows the same ceilings and points as the SVG view."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from mlsys_labkit._base.light_dark_colours import COLOURS, FIGURE_GRID
from mlsys_labkit._base.units import plain, si
from mlsys_labkit.device import VIRTUAL_LABEL
from mlsys_labkit.errors import require
from mlsys_labkit.roofline.labels import LabelBoard, Spot
from mlsys_labkit.roofline.layout import RooflineView, flat_start, slope_start, view
from mlsys_labkit.roofline.roof import Ceiling, Roof
from mlsys_labkit.work import Work

COMPUTE, MEMORY, POINT, ABOVE_ROOF = (
    COLOURS[f"roofline-{part}"].figure for part in ("compute-ceiling", "memory-ceiling", "point", "above-roof")
)

# Plotly's sides of a marker of 12 px: offset of the text's anchor and baseline in px. The first that is free is taken.
_SIDES = {
    "bottom right": (9.0, 19.0, "start"),
    "top left": (-9.0, -11.0, "end"),
    "bottom center": (0.0, 24.0, "middle"),
    "middle right": (14.0, 4.0, "start"),
    "top center": (0.0, -14.0, "middle"),
    "middle left": (-14.0, 4.0, "end"),
    "top right": (9.0, -11.0, "start"),
    "bottom left": (-9.0, 19.0, "end"),
}
_SIZES = ((430.0, 200.0), (640.0, 240.0), (980.0, 290.0))  # of the area between the axes, in narrow to wide cells


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
    for ceiling in (*shown.memory, *shown.compute):
        x = _ends(ceiling, shown)
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
    for (placed, speed), position in zip(shown.points, _text_positions(shown), strict=True):
        timed = placed.achieved_flops_per_second is not None
        chart.add_scatter(
            x=[placed.intensity],
            y=[speed],
            mode="markers+text",
            name=placed.work.name or "work",
            text=[placed.work.name or "work"],
            textposition=position,
            hovertext=f"{placed.verdict}<br>{plain(placed.intensity)} FLOP/B, {si(speed, 'FLOP/s')}",
            hoverinfo="text",
            showlegend=False,
            marker={
                "size": 12,
                "color": ABOVE_ROOF if placed.above_roof else POINT,
                "symbol": "x" if placed.above_roof else "circle" if timed else "diamond-open",
                "line": {"width": 0 if timed or placed.above_roof else 2},  # an open symbol is only its line
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
    # ticks keep the labels of both axes apart in the corner
    grid = {"type": "log", "gridcolor": FIGURE_GRID, "ticks": "outside", "ticklen": 8, "tickcolor": FIGURE_GRID}
    decades = range(math.floor(shown.y[0]), math.ceil(shown.y[1]))
    names = [si(10.0**decade, "").strip() for decade in decades]
    chart.update_xaxes(
        title="arithmetic intensity (FLOP/B)", range=list(shown.x), dtick=1, exponentformat="none", **grid
    )
    chart.update_yaxes(
        title="FLOP/s", range=list(shown.y), tickvals=[10.0**decade for decade in decades], ticktext=names, **grid
    )
    return chart


def _ends(ceiling: Ceiling, shown: RooflineView) -> list[float]:
    """Return the intensities between which a ceiling is drawn."""
    if ceiling.kind == "memory":
        top = max(c.value for c in shown.compute)
        return [10 ** slope_start(ceiling, shown), min(top / ceiling.value, 10 ** shown.x[1])]
    return [10 ** flat_start(ceiling, shown), 10 ** shown.x[1]]


def _text_positions(shown: RooflineView) -> list[str]:
    """Return for each point the side on which its name meets no ceiling, point or name, at every width of a cell."""
    plots = [_Plot(shown, *size) for size in _SIZES]
    positions = []
    for placed, speed in shown.points:
        text = placed.work.name or "work"
        rooms = {side: min(plot.room(text, placed.intensity, speed, side) for plot in plots) for side in _SIDES}
        best = next((side for side, room in rooms.items() if room >= 0), max(rooms, key=rooms.__getitem__))
        for plot in plots:
            plot.take(text, placed.intensity, speed, best)
        positions.append(best)
    return positions


class _Plot:
    """The area between the axes, of a size in px, and what stands in it."""

    def __init__(self, shown: RooflineView, width: float, height: float) -> None:
        self.shown, self.width, self.height = shown, width, height
        self.board = LabelBoard(0, 0, width, height)
        for ceiling in (*shown.memory, *shown.compute):
            ends = [self._at(x, ceiling.attainable(x)) for x in _ends(ceiling, shown)]
            self.board.block_line(*ends[0], *ends[1], clearance=10)
        for placed, speed in shown.points:
            self.board.block(*self._at(placed.intensity, speed), clearance=11)

    def room(self, text: str, intensity: float, speed: float, side: str) -> float:
        return self.board.room(text, self._spot(intensity, speed, side))

    def take(self, text: str, intensity: float, speed: float, side: str) -> None:
        self.board.take(text, self._spot(intensity, speed, side))

    def _at(self, intensity: float, speed: float) -> tuple[float, float]:
        (left, right), (low, high) = self.shown.x, self.shown.y
        across, up = (math.log10(intensity) - left) / (right - left), (math.log10(speed) - low) / (high - low)
        return across * self.width, (1 - up) * self.height

    def _spot(self, intensity: float, speed: float, side: str) -> Spot:
        x, y = self._at(intensity, speed)
        across, down, anchor = _SIDES[side]
        return Spot(x + across, y + down, anchor=anchor)
