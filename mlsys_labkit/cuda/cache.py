"""Compiled files in the user's cache directory: each made once, complete or not at all; the oldest are deleted.

An entry is a folder named by the content it was made from. It is made under another name and then renamed, so that no
process ever sees half of one; of two processes that make the same entry, one waits for the other or its own is dropped.
Entries that a living process has fetched are kept (claims.py), even if they are old and the cache is full.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from mlsys_labkit.cuda.claims import claims, locked
from mlsys_labkit.cuda.errors import CudaError

LIMIT_BYTES = 1 << 30
_CLEAN_SECONDS = 60.0  # between two checks of the size, because a check is slow with thousands of entries
_ABANDONED_SECONDS = 3600.0  # no compiler runs longer: older unfinished entries were left by a process that died
_TEMPORARY = ".making-"


def digest(*parts: str | bytes) -> str:
    """Return a name for content: equal for equal parts, 24 hexadecimal digits.

    Example:
        >>> digest("a", "bc") == digest("ab", "c")
        False
    """
    whole = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogateescape") if isinstance(part, str) else part
        whole.update(len(data).to_bytes(8, "little"))
        whole.update(data)
    return whole.hexdigest()[:24]


class Cache:
    """A folder of entries: ``LABKIT_CUDA_CACHE``, else ``mlsys-labkit/cuda`` in the user's cache directory.

    An entry of the folder ``LABKIT_CUDA_LENT``, which is only read, comes first.
    """

    def __init__(self, folder: Path | None = None, limit_bytes: int = LIMIT_BYTES) -> None:
        self.folder = folder or _default_folder()
        self.limit_bytes = limit_bytes

    def fetch(self, name: str, make: Callable[[Path], None]) -> Path:
        """Return the entry's folder, made by ``make(folder)`` if it is not there.

        Raises CudaError when the disk is full or must not be written to, and whatever ``make`` raises.
        """
        lent = Path(os.environ.get("LABKIT_CUDA_LENT") or os.devnull, name)
        if lent.is_dir():
            return lent
        entry = self.folder / name
        with contextlib.suppress(OSError):  # a cache of another user, lent for reading
            claims(self.folder.absolute()).add(name)
        if _touch(entry):
            return entry
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            with _turn(self.folder / f"{name}.lock"):
                if not _touch(entry):
                    self._make(entry, make)
        except OSError as error:
            raise self.refusal(error) from None
        return entry

    def has_any(self, prefix: str) -> bool:
        """Return whether there is an entry whose name begins so."""
        folders = [self.folder, Path(os.environ.get("LABKIT_CUDA_LENT") or os.devnull)]
        return any(not path.name.endswith(".lock") for folder in folders for path in folder.glob(f"{prefix}*"))

    def refusal(self, error: OSError) -> CudaError:
        """Return the error, in one line, for a folder that cannot hold compiled files."""
        reason = error.strerror or type(error).__name__
        return CudaError(
            f"compiled kernels cannot be kept in {self.folder}: {reason}; "
            "free some space there, or set LABKIT_CUDA_CACHE to a folder that can be written to"
        )

    def _make(self, entry: Path, make: Callable[[Path], None]) -> None:
        making = self.folder / f"{_TEMPORARY}{os.getpid()}-{secrets.token_hex(4)}"
        making.mkdir(mode=0o700)
        try:
            make(making)
            try:
                making.rename(entry)
            except OSError as error:
                if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                    raise  # else another process has made the same entry
        finally:
            shutil.rmtree(making, ignore_errors=True)
        if claims(self.folder.absolute()).seconds_since_cleaning() > _CLEAN_SECONDS:
            self.clean()

    def clean(self) -> None:
        """Delete the entries used longest ago, down to three quarters of the limit, and leftovers of dead processes.

        Entries that living processes have fetched stay, so the total can exceed the limit by their size.
        """
        entries = []
        for path in list(self.folder.iterdir()):
            with contextlib.suppress(OSError):
                used = path.stat().st_mtime
                if path.name.endswith(".lock") or path.name.startswith(_TEMPORARY):
                    if time.time() - used > _ABANDONED_SECONDS:
                        _remove(path)
                elif path.is_dir():
                    entries.append((used, _bytes_in(path), path))
        total = sum(nbytes for _, nbytes, _ in entries)
        with claims(self.folder.absolute()).cleaning() as in_use:
            if total <= self.limit_bytes:
                return
            for _, nbytes, path in sorted(entries):
                if total <= self.limit_bytes * 3 // 4:
                    return
                if path.name not in in_use:
                    with contextlib.suppress(OSError):  # another process has deleted it meanwhile
                        _remove(path)
                    total -= nbytes


def _default_folder() -> Path:
    chosen = os.environ.get("LABKIT_CUDA_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "mlsys-labkit" / "cuda"


def _touch(entry: Path) -> bool:
    """Update the time of last use of an entry; return False when there is none."""
    try:
        os.utime(entry)
    except FileNotFoundError:
        return False
    except PermissionError:
        return entry.is_dir()  # a cache of another user, lent for reading
    except OSError as error:
        if error.errno == errno.EROFS:
            return entry.is_dir()
        raise
    return True


@contextlib.contextmanager
def _turn(lock: Path) -> Iterator[None]:
    """Let one process at a time run the block, if the file system supports locks.

    The lock only prevents compiling the same source twice: without it the result is the same.
    """
    with locked(lock, fcntl.LOCK_EX):
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                lock.unlink()


def _bytes_in(folder: Path | os.DirEntry[str]) -> int:
    with os.scandir(folder) as found:
        return sum(_bytes_in(each) if each.is_dir(follow_symlinks=False) else each.stat().st_size for each in found)


def _remove(path: Path) -> None:
    """Rename a folder before it is deleted, because another process may look at any moment."""
    if path.is_dir():
        gone = path.with_name(f"{_TEMPORARY}{os.getpid()}-{secrets.token_hex(4)}")
        path.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
