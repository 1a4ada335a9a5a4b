"""One executed notebook as one lean HTML page that needs neither network nor kernel."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import nbformat
from nbconvert.exporters.html import HTMLExporter
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath
from traitlets.config import Config

from mlsys_grading.report.mathml import to_mathml
from mlsys_grading.report.templates import TEMPLATES, script, stylesheet
from mlsys_grading.run.job import Job
from mlsys_grading.run.result import Failure, NotebookResult

PAPERMILL_BANNER = "papermill-error-cell-tag"

# Our widgets and figures carry an HTML twin that is alive without a kernel; the widget view would need a CDN.
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


def _markdown(source: str) -> str:
    return str(MarkdownWithMath(renderer=_Renderer(escape=False, exclude_anchor_links=True)).render(source))


def _latex_output(source: str) -> str:
    display = _DISPLAY_MATH.match(source)
    return to_mathml(display.group(2), block=True) if display else to_mathml(source.strip().strip("$"))


def write_page(job: Job, result: NotebookResult) -> NotebookResult:
    """Write the notebook's page; a page that cannot be made is a failure of the notebook, not of the run."""
    try:
        job.page.write_text(render(job.executed, job.notebook, result), encoding="utf-8")
    except Exception as error:  # outputs are arbitrary: any layer of the renderer may stumble over one
        if result.failure is not None:
            return result
        failure = Failure("set-up", f"its page could not be rendered: {type(error).__name__}: {error}")
        return replace(result, status="failed", failure=failure)
    return replace(result, page=f"notebooks/{job.page.name}")


def render(executed: Path, fallback: Path, result: NotebookResult) -> str:
    """The page of one notebook.

    ``executed`` is what papermill wrote; where that is missing or cut short, because its process was killed, the page
    shows ``fallback``, the notebook as it was before the run. A notebook that cannot be read at all still gets a page.
    """
    notebook = _read(executed) or _read(fallback) or nbformat.v4.new_notebook()
    notebook.cells = [cell for cell in notebook.cells if PAPERMILL_BANNER not in cell.metadata.get("tags", [])]
    notebook.metadata.pop("widgets", None)
    number = 0
    for cell in notebook.cells:
        injected = "injected-parameters" in cell.metadata.get("tags", [])
        number += not injected
        cell.metadata["labkit"] = {
            "number": None if injected else number,
            "grade_id": cell.metadata.get("nbgrader", {}).get("grade_id"),
            "points": cell.metadata.get("nbgrader", {}).get("points"),
            "failed": result.failure is not None and result.failure.cell == number and not injected,
            "seconds": next((time.seconds for time in result.cells if time.cell == number and not injected), None),
        }
    exporter = HTMLExporter(
        template_name="labpage",
        extra_template_basedirs=[str(TEMPLATES)],
        config=Config({"NbConvertBase": {"display_data_priority": DISPLAY_PRIORITY}}),
        skip_svg_encoding=True,
    )
    exporter.register_filter("labkit_markdown", _markdown)
    exporter.register_filter("labkit_latex", _latex_output)
    look = {"css": stylesheet("labpage/page.css"), "js": script()}
    resources: dict[str, Any] = {"labkit": {"result": result, "plotly": needs_plotly(notebook), **look}}
    page, _ = exporter.from_notebook_node(notebook, resources)
    return str(page)


def needs_plotly(notebook: nbformat.NotebookNode) -> bool:
    """Whether any output is a plotly figure."""
    return any(
        "application/vnd.plotly.v1+json" in output.get("data", {})
        for cell in notebook.cells
        for output in cell.get("outputs", [])
    )


def _read(path: Path) -> nbformat.NotebookNode | None:
    try:
        return nbformat.read(path, as_version=4)
    except Exception:  # half a file can break any layer of the reader
        return None
