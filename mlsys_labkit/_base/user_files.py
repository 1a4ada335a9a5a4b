"""Files in the user's own folders: the operating system's places for them, and writes that leave all or nothing."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

_FOLDERS = {  # platform -> (variable, folder below the home directory) for caches and for data
    "win32": {"cache": ("LOCALAPPDATA", "AppData/Local"), "data": ("LOCALAPPDATA", "AppData/Local")},
    "darwin": {"cache": ("", "Library/Caches"), "data": ("", "Library/Application Support")},
    "": {"cache": ("XDG_CACHE_HOME", ".cache"), "data": ("XDG_DATA_HOME", ".local/share")},
}


def user_directory(kind: str, name: str) -> Path:
    """Return the kit's folder ``name`` for a "cache" or for "data". Raises RuntimeError where the user has no home."""
    variable, below = _FOLDERS.get(sys.platform, _FOLDERS[""])[kind]
    return Path(os.environ.get(variable) or Path.home() / below) / "mlsys-labkit" / name


def write_whole(path: Path, text: str) -> None:
    """Write a file, and its folder if there is none, so that readers get all of it or none. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, beside = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(beside, path)
    except BaseException:
        Path(beside).unlink(missing_ok=True)
        raise
