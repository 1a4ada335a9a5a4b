"""Records of progress in the user's data directory, one small JSON file per notebook. They contain no answers.

The records are not beside the notebook, because files there are handed in with it. Digests, names of tasks and times
are kept, and the notebook's own path, so that a notebook that was renamed keeps its record.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from pathlib import Path
from typing import Any

from mlsys_labkit._base.user_files import user_directory, write_whole
from mlsys_labkit._frontends.progress.catalogue import LabEntry
from mlsys_labkit._frontends.progress.notebook_record import NotebookRecord

MOST_FILES = 100
LIMIT_BYTES = 1 << 18


def directory() -> Path:
    """Return the folder of the records; ``XDG_DATA_HOME`` moves it on Linux."""
    return user_directory("data", "progress")


def load(lab: LabEntry, notebook: str) -> NotebookRecord:
    """Load the record of ``notebook``, or make a new one where none can be read.

    If it has none, the newest record whose notebook no longer exists is taken over: that notebook was renamed.
    """
    kept = _read(_path(lab, notebook))
    if kept is None:
        moved = [one for one in _of(lab) if not os.path.exists(one["notebook"])]
        kept = _newest(moved)
        if kept is not None:
            with contextlib.suppress(OSError):
                os.replace(_path(lab, kept["notebook"]), _path(lab, notebook))
    return _record(lab, kept)


def latest(lab: LabEntry) -> NotebookRecord:
    """Load the most recently changed record of a notebook of ``lab``."""
    return _record(lab, _newest(_of(lab)))


def save(record: NotebookRecord, notebook: str) -> None:
    """Write ``record``, whole or not at all. Raises OSError where the directory cannot be written to, or is full."""
    path = _path(record.lab, notebook)
    write_whole(path, json.dumps(record.to_json() | {"notebook": notebook}, separators=(",", ":")))
    _prune(path.parent)


def _record(lab: LabEntry, kept: dict[str, Any] | None) -> NotebookRecord:
    if kept is not None:
        with contextlib.suppress(KeyError, TypeError, ValueError, AttributeError):
            return NotebookRecord.from_json(lab, kept)
    return NotebookRecord(lab)


def _newest(found: list[dict[str, Any]]) -> dict[str, Any] | None:
    return max(found, key=lambda one: float(one["last"]), default=None)


def _of(lab: LabEntry) -> list[dict[str, Any]]:
    with contextlib.suppress(OSError, RuntimeError):
        found = [_read(path) for path in directory().glob(f"{lab.name}-*.json")]
        return [
            one
            for one in found
            if one is not None and isinstance(one.get("last"), int | float) and isinstance(one.get("notebook"), str)
        ]
    return []


def _read(path: Path) -> dict[str, Any] | None:
    with contextlib.suppress(OSError, ValueError, RecursionError):
        if path.stat().st_size <= LIMIT_BYTES:
            kept = json.loads(path.read_text(encoding="utf-8"))
            return kept if isinstance(kept, dict) else None
    return None


def _prune(folder: Path) -> None:
    """Delete the oldest files beyond ``MOST_FILES``: records, and temporary files of a process that died."""
    with contextlib.suppress(OSError):
        found = sorted(
            (path for path in folder.iterdir() if path.suffix in (".json", ".tmp")),
            key=lambda path: path.stat().st_mtime,
        )
        for path in found[:-MOST_FILES]:
            path.unlink(missing_ok=True)


def _path(lab: LabEntry, notebook: str) -> Path:
    return directory() / f"{lab.name}-{hashlib.sha256(notebook.encode('utf-8', 'surrogatepass')).hexdigest()[:12]}.json"
