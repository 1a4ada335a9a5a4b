"""Folders that are removed when their run ends; those of a killed run are removed by the next one."""

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

GRACE_SECONDS = 60.0  # longest time between making a folder and locking it, and between a report's two renames
_SUFFIX = ".scratch"


@contextmanager
def scratch_folder(name: str, place: Path | None = None) -> Iterator[Path]:
    """Make a folder ``place/name-xxxxxxxx.scratch`` for this process; ``place`` is the temporary folder by default.

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
        with contextlib.suppress(OSError):  # a file system without locks, on which no process sweeps either
            fcntl.flock(lock, fcntl.LOCK_SH)  # the kernel releases the lock however this process ends
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
    """Return True if ``folder`` is ours, unchanged for :data:`GRACE_SECONDS`, and no process holds it."""
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
