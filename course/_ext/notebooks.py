"""Notebooks of the chapters, written beside the pages and linked from each page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jupytext
import nbformat
from sphinx.application import Sphinx

FOLDER = "notebooks"


def _write(app: Sphinx, error: Exception | None) -> None:
    if error is not None or app.builder.name != "html":
        return
    folder = Path(app.outdir) / FOLDER
    folder.mkdir(exist_ok=True)
    for source in sorted(Path(app.srcdir, "chapters").glob("*.md")):
        notebook = jupytext.read(source, fmt="md:myst")
        notebook.metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
        for at, cell in enumerate(notebook.cells):
            cell.id = f"{source.stem}-{at:03d}"  # two builds write the same bytes
        (folder / f"{source.stem}.ipynb").write_text(nbformat.writes(notebook) + "\n", "utf-8")


def _link(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    if page.startswith("chapters/"):
        address = f"../{FOLDER}/{page.removeprefix('chapters/')}.ipynb"
        link = f'<p class="as-notebook"><a href="{address}" download>This chapter as a notebook</a></p>'
        context["body"] = context["body"].replace("</h1>", f"</h1>{link}", 1)


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("html-page-context", _link)
    app.connect("build-finished", _write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
