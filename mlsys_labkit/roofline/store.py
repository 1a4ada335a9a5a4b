"""Measured ceilings kept in the user's cache directory, one JSON file for each device and software that measured it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from mlsys_labkit.roofline.model import Ceiling

SCHEMA = 1


def directory() -> Path:
    """Where the operating system wants caches; ``XDG_CACHE_HOME`` moves it on Linux."""
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData/Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library/Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "mlsys-labkit" / "roofline"


def load(key: str, seconds: float) -> tuple[Ceiling, ...]:
    """Ceilings kept under ``key`` by a measurement at least as long as ``seconds``; empty when there are none."""
    try:
        kept = json.loads(_path(key).read_text(encoding="utf-8"))
        if kept["schema"] != SCHEMA or kept["key"] != key or kept["seconds"] < seconds:
            return ()
        return tuple(Ceiling(**ceiling) for ceiling in kept["ceilings"])
    except (OSError, ValueError, KeyError, TypeError):
        return ()  # missing, unreadable or from another version: measure again


def save(key: str, seconds: float, ceilings: tuple[Ceiling, ...]) -> None:
    """Keep ``ceilings``. A directory that cannot be written to costs a measurement next time, and no error now."""
    path = _path(key)
    record = {"schema": SCHEMA, "key": key, "seconds": seconds, "ceilings": [asdict(c) for c in ceilings]}
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, beside = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(record, file, indent=1)
            os.replace(beside, path)
        except OSError:
            Path(beside).unlink(missing_ok=True)


def _path(key: str) -> Path:
    slug = re.sub(r"[^a-z0-9]+", "-", key.lower()).strip("-")[:80]
    return directory() / f"{slug}-{hashlib.sha256(key.encode()).hexdigest()[:8]}.json"
