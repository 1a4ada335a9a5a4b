"""Folders that are gone when their run ends. A run that was killed leaves them, and the next one sweeps them."""

from __future__ import annotations

import contextlib
import fcntl
import glob
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

GRACE_SECONDS = 60.0  # between the making of a folder and its lock, and between the two renames of a report
_SUFFIX = ".scratch"


@contextmanager
def scratch_folder(name: str, place: Path | None = None) -> Iterator[Path]:
    """A new folder ``place/name-xxxxxxxx.scratch`` of this process's own; ``place`` is the temporary folder by default.

    It is removed at the end, unless it has been renamed. Raises OSError if it cannot be made.

    Example:
        >>> with scratch_folder("labkit") as folder:
        ...     folder.is_dir()
        True
    """
    place = place or Path(tempfile.gettempdir())
    sweep(name, place)
    folder = Path(tempfile.mkdtemp(prefix=f"{name}-", suffix=_SUFFIX, dir=place))
    lock = -1
    try:
        lock = os.open(folder, os.O_RDONLY)
        with contextlib.suppress(OSError):  # a file system without locks: then nobody can sweep it either
            fcntl.flock(lock, fcntl.LOCK_SH)  # the kernel lets go of it however this process ends
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if lock >= 0:
            os.close(lock)


def sweep(name: str, place: Path) -> None:
    """Remove this user's folders of that name whose process is dead."""
    for folder in place.glob(f"{glob.escape(name)}-????????{_SUFFIX}"):
        if abandoned(folder):
            shutil.rmtree(folder, ignore_errors=True)


def abandoned(folder: Path) -> bool:
    """Whether ``folder`` is ours, has been left alone for :data:`GRACE_SECONDS`, and no process holds it."""
    try:
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        status = os.fstat(lock)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return status.st_uid == os.getuid() and time.time() - status.st_ctime >= GRACE_SECONDS
    except OSError:
        return False
    finally:
        os.close(lock)
