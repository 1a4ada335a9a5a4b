"""Files that are written as a whole: a reader finds the old content or the new."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path


def write_atomic(path: Path, content: str | bytes) -> None:
    """Write ``content`` beside ``path`` and rename it into place; folders on the way are made.

    A full disk, a read-only folder or Ctrl-C leaves the old file as it was and no scrap beside it.
    Raises OSError whose ``filename`` is ``path``.

    Example:
        >>> write_atomic(Path("report/index.html"), "<!doctype html>")  # doctest: +SKIP
    """
    data = content.encode("utf-8") if isinstance(content, str) else content
    scrap = path.with_name(f".{path.name}.{os.getpid()}.part")
    with named(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            # Not tempfile: its 0600 would keep a web server or a class from reading the result.
            with open(scrap, "wb") as file:
                file.write(data)
            os.replace(scrap, path)
        except BaseException:
            scrap.unlink(missing_ok=True)
            raise


def write_if_changed(path: Path, content: str | bytes) -> bool:
    """Write like :func:`write_atomic`, unless the file holds ``content`` already; return True if it was written."""
    data = content.encode("utf-8") if isinstance(content, str) else content
    if path.is_file() and path.read_bytes() == data:
        return False
    write_atomic(path, data)
    return True


def write_files(contents: Mapping[Path, str | bytes]) -> None:
    """Write files in their order, each as :func:`write_if_changed` does."""
    for path, content in contents.items():
        write_if_changed(path, content)


@contextmanager
def named(path: Path) -> Iterator[None]:
    """Add ``path`` to each OSError: ENOSPC carries no name, and other errors carry that of a temporary file."""
    try:
        yield
    except OSError as error:
        error.filename = str(path)
        raise


def sweep_parts(folders: Iterable[Path]) -> None:
    """Remove the temporary files of killed processes; no other process may be writing to ``folders``.

    Example:
        >>> sweep_parts([Path("autograded/ada/lab01")])  # doctest: +SKIP
    """
    for folder in folders:
        for scrap in folder.glob(".*.part"):
            scrap.unlink(missing_ok=True)
