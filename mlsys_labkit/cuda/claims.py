"""Lists of the cache entries that living processes use, so that none of those is dropped.

Each process writes the names of what it fetches to a file of its own in the cache's folder, before it looks whether the
entry is there, and holds that file locked. The system releases the lock when the process ends, for any reason; forked
children share it. Writing a name and dropping entries exclude each other by a lock on the folder.

Reference: Linux manual page flock(2).
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import secrets
import threading
import time
from collections.abc import Iterator
from pathlib import Path

_LIST = ".used-by-"
_FOLDER_LOCK = ".cleaned"  # its modification time is the time of the last cleaning


class Claims:
    """The entries of one folder that this process uses, and access to the lists of other processes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder
        self._file: int | None = None
        self._names: set[str] = set()
        self._one_thread = threading.Lock()

    def add(self, name: str) -> None:
        """Protect the entry of this name, which may not exist yet, from cleaning as long as this process lives.

        Raises OSError when the folder must not be written to.
        """
        if name in self._names and self._is_there():
            return
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self._one_thread, locked(self._folder / _FOLDER_LOCK, fcntl.LOCK_SH):
            if not self._is_there():
                self._begin()
            assert self._file is not None
            os.write(self._file, f"{name}\n".encode())
            self._names.add(name)

    @contextlib.contextmanager
    def cleaning(self) -> Iterator[set[str]]:
        """Yield the names in use. No process can add one inside the block."""
        with locked(self._folder / _FOLDER_LOCK, fcntl.LOCK_EX):
            os.utime(self._folder / _FOLDER_LOCK)
            lists = self._folder.glob(f"{_LIST}*")
            yield {name for path in lists if path == self._path or _is_held(path) for name in _names_in(path)}

    def seconds_since_cleaning(self) -> float:
        """Return the seconds since any process cleaned the folder."""
        try:
            return abs(time.time() - (self._folder / _FOLDER_LOCK).stat().st_mtime)
        except FileNotFoundError:
            return float("inf")

    def _is_there(self) -> bool:
        """Return False when another process has emptied the folder."""
        return self._file is not None and os.fstat(self._file).st_nlink > 0

    def _begin(self) -> None:
        if self._file is not None:
            os.close(self._file)
        self._names.clear()
        self._path = self._folder / f"{_LIST}{os.getpid()}-{secrets.token_hex(4)}"
        self._file = os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC, 0o600)
        with contextlib.suppress(OSError):
            fcntl.flock(self._file, fcntl.LOCK_EX)


@functools.cache
def claims(folder: Path) -> Claims:
    """Return the claims of this process on ``folder``."""
    return Claims(folder)


@contextlib.contextmanager
def locked(path: Path, operation: int) -> Iterator[None]:
    """Hold a lock on a file, made if missing, inside the block; run without one where there are no locks."""
    file = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(file, operation)
        yield
    finally:
        os.close(file)


def _is_held(path: Path) -> bool:
    """Return whether the process that made this list is alive; delete the list of one that has ended."""
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink(missing_ok=True)
    except OSError:  # another process holds it, or the system cannot lock
        return True
    finally:
        os.close(file)
    return False


def _names_in(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").split()
