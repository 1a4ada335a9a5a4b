"""Plotly figures that survive: drawn in JupyterLab, drawn in a page that loads plotly.js once, a table elsewhere.

A bare ``go.Figure`` has one MIME type and vanishes from most exported pages; a ``FigureWidget`` brings 5 MB along.
"""

from __future__ import annotations

import html
import json
import secrets
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from mlsys_labkit.errors import LabkitError, require

PLOTLY_MIME = "application/vnd.plotly.v1+json"
TEMPLATE = "mlsys"
HEIGHT_PX = 420
# One figure serves light and dark pages: each of these keeps 3:1 against white and against JupyterLab's dark paper.
COLORS = ("#2a7fbf", "#cc5a00", "#0b8f70", "#a9609c", "#8a7000", "#7a6fd0", "#7c7c7c")
INK = "#7a7a7a"
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x", "cross", "star")
GRID = "rgba(128,128,128,0.28)"
_LISTED = 6

_DRAW = """
const home = document.getElementById(HOME);
const draw = () => {
  if (!window.Plotly || home.dataset.alive) return;
  home.dataset.alive = "yes";
  const plot = home.querySelector("div"), ink = () => getComputedStyle(home).color;
  plot.hidden = false;
  home.querySelector("details").open = false;
  const layout = FIGURE.layout || {};
  layout.font = { color: ink(), ...layout.font };
  window.Plotly.newPlot(plot, FIGURE.data, layout, { responsive: true, displaylogo: false });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () =>
    window.Plotly.relayout(plot, { "font.color": ink() }));
};
draw();
addEventListener("load", draw);
"""


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
    text = summary or _default_summary(figure)
    try:
        from IPython.core.getipython import get_ipython
        from IPython.display import display
    except ModuleNotFoundError:
        print(text)
        return
    if get_ipython() is None:
        print(text)
        return
    display(bundle(figure, summary), raw=True)


def bundle(fig: Any, summary: str = "") -> dict[str, Any]:
    """The MIME bundle of a figure: plotly's JSON, HTML without plotly.js, and text."""
    figure = _styled(fig)
    text = summary or _default_summary(figure)
    drawing = json.loads(figure.to_json())  # plain lists: some front ends read no numpy
    return {PLOTLY_MIME: drawing, "text/html": figure_html(figure, summary), "text/plain": text}


def figure_html(fig: Any, summary: str = "") -> str:
    """A fragment that draws itself where ``window.Plotly`` is loaded, and is a data table with its summary elsewhere.

    plotly.js is never inlined: a page loads it once for all figures.
    """
    figure = _styled(fig)
    text = html.escape(summary or _default_summary(figure))
    home = f"lk-figure-{secrets.token_hex(6)}"
    height = figure.layout.height or HEIGHT_PX
    rows = "".join(
        f'<tr><th scope="row">{html.escape(first)}</th>{"".join(f"<td>{html.escape(cell)}</td>" for cell in rest)}</tr>'
        for first, *rest in _rows(figure)
    )
    head = "".join(f'<th scope="col">{name}</th>' for name in ("series", "kind", *_axes(figure)))
    # "<" inside a string would end or bend the script element that holds it
    data = figure.to_json().replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    script = _DRAW.replace("HOME", f'"{home}"').replace("FIGURE.", "figure.")
    return (
        f'<figure id="{home}" class="lk-figure" style="margin:8px 0">'
        f'<div role="img" aria-label="{text}" style="width:100%;height:{height}px" hidden></div>'
        f"<figcaption>{text}</figcaption>"
        f"<details open><summary>Data</summary><table><caption>What the figure shows</caption>"
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></details></figure>"
        f'<script type="module">\nconst figure = {data};{script}</script>'
    )


def template() -> Any:
    """The ``mlsys`` template, registered with plotly: transparent, mid-grey, legible on light and on dark."""
    io, graph = require("plotly.io", "widgets"), require("plotly.graph_objects", "widgets")
    if TEMPLATE not in io.templates:
        axis = {"gridcolor": GRID, "linecolor": GRID, "zerolinecolor": GRID}
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
    """A copy in our template, unless the author chose another one."""
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
    """A few values in full, many as their range."""
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
