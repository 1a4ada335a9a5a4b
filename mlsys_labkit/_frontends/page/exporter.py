"""nbconvert's exporter ``labkit_html``: formulas as MathML, interactive widgets, plotly.js once or not at all."""

from __future__ import annotations

import re
from importlib.resources import files
from typing import Any

from jinja2 import pass_context
from nbconvert.exporters.html import HTMLExporter
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath
from traitlets import default
from traitlets.config import Config

from mlsys_labkit._frontends.figures import PLOTLY_MIME
from mlsys_labkit._frontends.page import look
from mlsys_labkit._frontends.page.mathml import to_mathml

# Our widgets and figures have an HTML form that works without a kernel; the widget view would need a CDN.
DISPLAY_PRIORITY = [
    "text/html",
    "text/markdown",
    "image/svg+xml",
    "image/png",
    "image/jpeg",
    "text/latex",
    "text/plain",
]
_DISPLAY_MATH = re.compile(r"^\s*(\$\$|\\\[)(.*?)(\$\$|\\\])\s*$", re.DOTALL)


class _Renderer(IPythonRenderer):
    """Markdown with formulas turned into MathML while the page is made."""

    def block_math(self, body: str) -> str:
        return to_mathml(body, block=True)

    def inline_math(self, body: str) -> str:
        return to_mathml(body)

    def latex_environment(self, name: str, body: str) -> str:
        return to_mathml(rf"\begin{{{name}}}{body}\end{{{name}}}", block=True)

    def multiline_math(self, text: str) -> str:
        return to_mathml(text.strip().strip("$"), block=True)


def _latex_output(source: str) -> str:
    shown = _DISPLAY_MATH.match(source)
    return to_mathml(shown.group(2), block=True) if shown else to_mathml(source.strip().strip("$"))


class PageExporter(HTMLExporter):
    """One lean page, light and dark, that needs neither network nor kernel.

    Example:
        >>> import nbformat
        >>> notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(r"# Cost: $n^2$")])
        >>> page, _ = PageExporter().from_notebook_node(notebook)
        >>> "<msup" in page, "src=" in page
        (True, False)

    Reference: nbconvert documentation, "Customizing exporters".
    """

    export_from_notebook = "HTML, alive without kernel and network"

    @default("template_name")
    def _template_name_default(self) -> str:
        return "labkit_page"

    @default("extra_template_basedirs")
    def _extra_template_basedirs_default(self) -> list[str]:
        return [str(look.TEMPLATES)]

    @default("skip_svg_encoding")
    def _skip_svg_encoding_default(self) -> bool:
        return True

    @default("embed_images")
    def _embed_images_default(self) -> bool:
        return True

    @property
    def default_config(self) -> Config:
        config = Config(super().default_config)
        config.NbConvertBase.display_data_priority = DISPLAY_PRIORITY
        return config

    def default_filters(self) -> Any:
        yield from super().default_filters()  # type: ignore[no-untyped-call]
        yield "labkit_latex", _latex_output

    @pass_context
    def markdown2html(self, context: Any, source: str) -> str:
        """Convert the Markdown of a cell or an output to HTML, with formulas as MathML and pictures embedded."""
        renderer = _Renderer(
            escape=False,
            attachments=context.get("cell", {}).get("attachments", {}),
            embed_images=self.embed_images,
            path=context.get("resources", {}).get("metadata", {}).get("path", ""),
            exclude_anchor_links=True,
        )
        return str(MarkdownWithMath(renderer=renderer).render(source))

    def _preprocess(self, nb: Any, resources: Any) -> tuple[Any, Any]:
        # After the preprocessors: with --execute, one of them has only now made the outputs.
        notebook, made = super()._preprocess(nb, resources)  # type: ignore[no-untyped-call]
        label(notebook)
        own = {"css": look.stylesheet(look.ROOM / "page.css"), "js": look.script(), "plotly": _plotly(notebook)}
        made["labkit"] = {**own, **made.get("labkit", {})}  # the caller's entries take precedence
        return notebook, made


def markdown_to_html(source: str) -> str:
    """Convert Markdown to HTML, with formulas as MathML and HTML in it escaped."""
    return str(MarkdownWithMath(renderer=_Renderer(escape=True, exclude_anchor_links=True)).render(source))


def label(notebook: Any) -> None:
    """Write what the head of each cell shows to ``cell.metadata.labkit``; keep entries that are there."""
    number = 0
    for cell in notebook.cells:
        injected = "injected-parameters" in cell.metadata.get("tags", [])
        number += not injected
        graded = cell.metadata.get("nbgrader", {})
        own = {
            "number": None if injected else number,
            "grade_id": graded.get("grade_id"),
            "points": graded.get("points"),
        }
        cell.metadata["labkit"] = {**own, "failed": False, "seconds": None, **cell.metadata.get("labkit", {})}


def has_figure(notebook: Any) -> bool:
    """Check for an output that is a plotly figure."""
    return any(PLOTLY_MIME in output.get("data", {}) for cell in notebook.cells for output in cell.get("outputs", []))


def _plotly(notebook: Any) -> str:
    """Return plotly.js, 4.7 MB, if the notebook has a figure and plotly is installed; figures are tables otherwise."""
    if not has_figure(notebook):
        return ""
    try:
        return files("plotly").joinpath("package_data/plotly.min.js").read_text("utf-8")
    except ModuleNotFoundError:
        return ""
