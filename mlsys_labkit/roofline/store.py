"""Measured ceilings kept in the user's cache directory, one JSON file for each device and software that measured it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from dataclasses import asdict
from pathlib import Path

from mlsys_labkit._base.user_files import user_directory, write_whole
from mlsys_labkit.roofline.roof import Ceiling

SCHEMA = 1


def directory() -> Path:
    """Return the folder of the measured ceilings; ``XDG_CACHE_HOME`` moves it on Linux."""
    return user_directory("cache", "roofline")


def load(key: str, seconds: float) -> tuple[Ceiling, ...]:
    """Load the ceilings that a measurement of at least ``seconds`` kept under ``key``; empty if there are none."""
    try:
        kept = json.loads(_path(key).read_text(encoding="utf-8"))
        if kept["schema"] != SCHEMA or kept["key"] != key or kept["seconds"] < seconds:
            return ()
        return tuple(Ceiling(**ceiling) for ceiling in kept["ceilings"])
    except (OSError, ValueError, KeyError, TypeError):
        return ()  # missing, unreadable or from another version: measure again


def save(key: str, seconds: float, ceilings: tuple[Ceiling, ...]) -> None:
    """Keep ``ceilings``. If the directory cannot be written to, the next call measures again; no error is raised."""
    record = {"schema": SCHEMA, "key": key, "seconds": seconds, "ceilings": [asdict(c) for c in ceilings]}
    with contextlib.suppress(OSError):
        write_whole(_path(key), json.dumps(record, indent=1))


def _path(key: str) -> Path:
    slug = re.sub(r"[^a-z0-9]+", "-", key.lower()).strip("-")[:80]
    return directory() / f"{slug}-{hashlib.sha256(key.encode()).hexdigest()[:8]}.json"
