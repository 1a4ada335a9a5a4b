"""Files that appear complete or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

__all__ = ["write_whole"]


def write_whole(path: str | Path, text: str) -> Path:
    """Write a text to a temporary file and rename it, so that a reader never gets a half-written file.

    Example:
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_whole(Path(folder, "a.txt"), "all of it").read_text()
        'all of it'
    """
    target = Path(path)
    handle, partial = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(partial, 0o644)  # mkstemp makes it readable by its owner only
        os.replace(partial, target)
    except BaseException:
        os.unlink(partial)
        raise
    return target
