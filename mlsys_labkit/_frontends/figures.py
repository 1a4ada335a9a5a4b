"""Plotly figures that are drawn in JupyterLab and in pages that load plotly.js once, and are a table elsewhere.

A bare ``go.Figure`` has one MIME type, which most exported pages leave out; a ``FigureWidget`` adds 5 MB to a notebook.
"""

from __future__ import annotations

import html
import json
import secrets
import sys
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

import numpy as np

from mlsys_labkit._base.cells import display
from mlsys_labkit._base.light_dark_colours import COLOURS, FIGURE_GRID
from mlsys_labkit.errors import LabkitError, require
from mlsys_labkit.widgets.base import in_script, table

PLOTLY_MIME = "application/vnd.plotly.v1+json"
TEMPLATE = "mlsys"
HEIGHT_PX = 420
COLORS = tuple(COLOURS[name].figure for name in ("blue", "orange", "green", "purple", "olive", "indigo", "grey"))
INK = COLOURS["ink"].figure
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x", "cross", "star")
_LISTED = 6

_DRAW = files(__package__).joinpath("figure.js").read_text("utf-8")  # it reads the variables ``figure`` and ``homeId``


def show(fig: Any, summary: str = "") -> None:
    """Display a plotly ``go.Figure``; ``summary`` is its conclusion in words, for those who cannot see it.

    Raises LabkitError when ``fig`` is not a plotly figure, MissingExtraError without plotly.
    Reference: Jupyter documentation, "Rich output: MIME bundles".

    Example:
        >>> import plotly.graph_objects as go
        >>> show(go.Figure(go.Bar(y=[1, 4])), summary="The second bar is four times the first.")
        The second bar is four times the first.
    """
    figure = _styled(fig)
    if "google.colab" in sys.modules:  # Colab draws no plotly MIME and loads no plotly.js of its own
        figure.show(renderer="colab")
        return
    made = bundle(figure, summary)
    display(made, made["text/plain"], raw=True)


def bundle(fig: Any, summary: str = "") -> dict[str, Any]:
    """Return the MIME bundle of a figure: plotly's JSON, HTML without plotly.js, and text."""
    figure = _styled(fig)
    text = summary or _default_summary(figure)
    drawing = json.loads(figure.to_json())  # plain lists: some front ends read no numpy
    return {PLOTLY_MIME: drawing, "text/html": figure_html(figure, summary), "text/plain": text}


def figure_html(fig: Any, summary: str = "") -> str:
    """Return a fragment that draws itself where ``window.Plotly`` is loaded, and is a table with its summary elsewhere.

    plotly.js is never inlined: a page loads it once for all figures.
    """
    figure = _styled(fig)
    text = html.escape(summary or _default_summary(figure))
    home = f"lk-figure-{secrets.token_hex(6)}"
    height = figure.layout.height or HEIGHT_PX
    data = in_script(figure.to_json())
    rows = table("What the figure shows", ("series", "kind", *_axes(figure)), _rows(figure))
    return (
        f'<figure id="{home}" class="lk-figure" style="margin:8px 0">'
        f'<div role="img" aria-label="{text}" style="width:100%;height:{height}px" hidden></div>'
        f"<figcaption>{text}</figcaption>"
        f"<details open><summary>Data</summary>{rows}</details></figure>"
        f'<script type="module">\nconst figure = {data}, homeId = "{home}";\n{_DRAW}</script>'
    )


def template() -> Any:
    """Return the ``mlsys`` template, registered with plotly: transparent, and legible on light and on dark pages."""
    io, graph = require("plotly.io", "widgets"), require("plotly.graph_objects", "widgets")
    if TEMPLATE not in io.templates:
        axis = {"gridcolor": FIGURE_GRID, "linecolor": FIGURE_GRID, "zerolinecolor": FIGURE_GRID}
        io.templates[TEMPLATE] = graph.layout.Template(
            data={"scatter": [{"marker": {"symbol": symbol}} for symbol in SYMBOLS]},  # not told apart by colour alone
            layout={
                "paper_bgcolor": "rgba(0,0,0,0)",
                "plot_bgcolor": "rgba(0,0,0,0)",
                "font": {"color": INK, "size": 13},
                "colorway": list(COLORS),
                "xaxis": {**axis, "automargin": True},
                "yaxis": {**axis, "automargin": True},
                "scene": {name: {**axis, "showbackground": False} for name in ("xaxis", "yaxis", "zaxis")},
                "colorscale": {"sequential": "Viridis", "diverging": "RdBu"},
                "margin": {"l": 56, "r": 20, "t": 44, "b": 48},
                "hovermode": "closest",
                "title": {"x": 0.02, "xanchor": "left"},
            },
        )
    return io.templates[TEMPLATE]


def _styled(fig: Any) -> Any:
    """Return a copy in our template, unless the author chose another one."""
    graph, io = require("plotly.graph_objects", "widgets"), require("plotly.io", "widgets")
    if not isinstance(fig, graph.Figure):
        raise LabkitError(f"show expects a plotly go.Figure, got {type(fig).__name__}; wrap traces in go.Figure(...)")
    ours = template()
    figure = graph.Figure(fig)
    if figure.layout.template in (graph.layout.Template(), io.templates["plotly"]):
        figure.layout.template = ours
    return figure


def _default_summary(figure: Any) -> str:
    title = figure.layout.title.text or "Figure"
    return f"{title}: {len(figure.data)} series."


def _axes(figure: Any) -> list[str]:
    return [axis for axis in ("x", "y", "z") if any(getattr(trace, axis, None) is not None for trace in figure.data)]


def _rows(figure: Any) -> Iterator[list[str]]:
    axes = _axes(figure)
    for number, trace in enumerate(figure.data, 1):
        name = trace.name or f"series {number}"
        yield [name, trace.type, *(_cell(getattr(trace, axis, None)) for axis in axes)]


def _cell(values: Any) -> str:
    """Return a few values in full, many as their range."""
    if values is None:
        return ""
    array = np.asarray(values)
    shape = "×".join(map(str, array.shape))
    if not np.issubdtype(array.dtype, np.number):
        listed = [str(value) for value in array.ravel()]
        return ", ".join(listed) if len(listed) <= _LISTED else f"{listed[0]} … {listed[-1]} ({shape})"
    if array.size <= _LISTED:
        return ", ".join(f"{value:.4g}" for value in array.ravel())
    finite = array[np.isfinite(array)]
    return f"{finite.min():.4g} to {finite.max():.4g} ({shape} values)" if finite.size else f"no finite value ({shape})"
