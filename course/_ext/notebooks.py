"""Notebooks of the chapters, written beside the pages."""

from __future__ import annotations

import hashlib
import shutil
import time
from pathlib import Path

import jupytext
import nbformat
from jupyter_cache import get_cache
from jupyter_cache.cache.db import create_db
from sphinx.application import Sphinx

FOLDER = "notebooks"
OLD_SECONDS = 86_400


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


def cache_of(root: Path) -> Path:
    """Return the folder for executed cells, one for each state of the kit: their outputs hold the kit's widgets."""
    digest = hashlib.sha256()
    for path in sorted(path for part in ("mlsys_labkit", "course/data") for path in (root / part).rglob("*")):
        if path.is_file() and path.suffix != ".pyc":
            digest.update(path.relative_to(root).as_posix().encode() + path.read_bytes())
    return root / "build/course-cache" / digest.hexdigest()[:16]


def _make_cache(app: Sphinx) -> None:
    # Two processes that read chapters at once would both create the tables of a cache that is not there yet.
    if app.config.nb_execution_mode != "cache":
        return
    cache = Path(app.config.nb_execution_cache_path)
    for other in cache.parent.glob("*"):
        if other != cache and other.is_dir() and time.time() - other.stat().st_mtime > OLD_SECONDS:
            shutil.rmtree(other, ignore_errors=True)  # no build that is still under way uses it
    create_db(get_cache(cache).path)


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("builder-inited", _make_cache)
    app.connect("build-finished", _write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
