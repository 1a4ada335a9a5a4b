"""Notebooks of the chapters, written beside the pages."""

from __future__ import annotations

from pathlib import Path

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


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("build-finished", _write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
