"""One executed notebook as one lean HTML page that needs neither network nor kernel."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import nbformat

from mlsys_grading.report.result import Failure, NotebookResult
from mlsys_grading.report.templates import TEMPLATES
from mlsys_labkit._frontends.page import look
from mlsys_labkit._frontends.page.exporter import PageExporter, has_figure, label

PAPERMILL_BANNER = "papermill-error-cell-tag"


def write_page(page: Path, executed: Path, fallback: Path, result: NotebookResult) -> NotebookResult:
    """Write :func:`render`'s page to ``page``. If that fails, the notebook has failed, and not the run."""
    try:
        page.write_text(render(executed, fallback, result), encoding="utf-8")
    except Exception as error:  # outputs are arbitrary: any layer of the renderer may stumble over one
        if result.failure is not None:
            return result
        failure = Failure("set-up", f"its page could not be rendered: {type(error).__name__}: {error}")
        return replace(result, status="failed", failure=failure)
    return replace(result, page=f"notebooks/{page.name}")


def render(executed: Path, fallback: Path, result: NotebookResult) -> str:
    """Return the page of one notebook.

    ``executed`` is the file that papermill wrote. If it is missing or cut short because its process was killed, the
    page shows ``fallback``, the notebook before the run. A notebook that cannot be read at all still gets a page.
    """
    notebook = _read(executed) or _read(fallback) or nbformat.v4.new_notebook()  # type: ignore[no-untyped-call]
    notebook.cells = [cell for cell in notebook.cells if PAPERMILL_BANNER not in cell.metadata.get("tags", [])]
    label(notebook)
    seconds = {time.cell: time.seconds for time in result.cells}
    for cell in notebook.cells:
        number = cell.metadata["labkit"]["number"]
        failed = number is not None and result.failure is not None and result.failure.cell == number
        cell.metadata["labkit"] |= {"failed": failed, "seconds": seconds.get(number)}
    ours = {"extra_template_basedirs": [str(TEMPLATES)], "extra_template_paths": [str(look.TEMPLATES)]}
    exporter = PageExporter(template_name="labpage", **ours)  # type: ignore[no-untyped-call]
    given: dict[str, Any] = {"result": result, "plotly": has_figure(notebook)}
    page, _ = exporter.from_notebook_node(notebook, {"labkit": given})
    return str(page)


def _read(path: Path) -> nbformat.NotebookNode | None:
    try:
        notebook: nbformat.NotebookNode = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
        return notebook
    except Exception:  # half a file can break any layer of the reader
        return None
