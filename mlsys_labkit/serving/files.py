"""Files that appear complete or not at all."""

from __future__ import annotations

from pathlib import Path

from mlsys_labkit._base import user_files


def write_whole(path: str | Path, text: str) -> Path:
    """Write a text that everyone may read; a reader never gets a half-written file.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     write_whole(Path(folder, "a.txt"), "all of it").read_text()
        'all of it'
    """
    target = Path(path)
    target.parent.stat()  # raises: a folder that is not there is a mistake in the path
    user_files.write_whole(target, text)
    target.chmod(0o644)
    return target
