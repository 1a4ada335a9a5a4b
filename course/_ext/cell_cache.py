"""The cache of executed cells: one folder for each state of the kit."""

from __future__ import annotations

import hashlib
import shutil
import time
from pathlib import Path

from jupyter_cache import get_cache
from jupyter_cache.cache.db import create_db
from sphinx.application import Sphinx

OLD_SECONDS = 86_400


def cache_of(root: Path) -> Path:
    """Return the folder for executed cells, one for each state of the kit: their outputs hold the kit's widgets."""
    digest = hashlib.sha256()
    for path in sorted(path for part in ("mlsys_labkit", "course/data") for path in (root / part).rglob("*")):
        if path.is_file() and path.suffix != ".pyc":
            digest.update(path.relative_to(root).as_posix().encode() + path.read_bytes())
    return root / "build/course-cache" / digest.hexdigest()[:16]


def make(app: Sphinx) -> None:
    """Create the cache's tables, and remove caches of other states that no build can be using any more."""
    # Two processes that read chapters at once would both create the tables of a cache that is not there yet.
    if app.config.nb_execution_mode != "cache":
        return
    cache = Path(app.config.nb_execution_cache_path)
    for other in cache.parent.glob("*"):
        if other != cache and other.is_dir() and time.time() - other.stat().st_mtime > OLD_SECONDS:
            shutil.rmtree(other, ignore_errors=True)
    create_db(get_cache(cache).path)


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("builder-inited", make)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
