"""Limit of what a person's files occupy, for file systems without quotas of their own.

A thread measures each person's home. While it occupies more than its limit, no process of the person may write beyond
the first 4 KiB of a file: the write fails with EFBIG, "File too large". They can still read, delete and start kernels.
JupyterLab says why a notebook is not saved (``binder/hub/singleuser/jupyter_server_config.py``). Between two looks a
person can write more than the limit; a quota of the file system for each person's uid allows not even that.

Reference: man 2 prlimit (RLIMIT_FSIZE).
"""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tornado.log import app_log

from mlsys_grading.processes import birth
from mlsys_grading.sandbox import watch

LOOK_SECONDS = 10.0
_BLOCK = 512  # of st_blocks
_A_FEW_BYTES = 4096  # a new kernel writes a file of its addresses


@dataclass(frozen=True)
class _Server:
    pid: int
    born: int
    uid: int
    paths: tuple[Path, ...]
    limit: int


class HomeWatcher:
    """Watcher of the files of people with a server, with a thread of its own that runs while there are any."""

    def __init__(self) -> None:
        self._servers: dict[int, _Server] = {}
        self._full: set[int] = set()  # servers whose people may not write now
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, pid: int, uid: int, paths: tuple[Path, ...], limit: int) -> None:
        """Keep the files of ``uid`` in ``paths`` within ``limit`` bytes while ``pid`` runs; 0: no limit."""
        if not limit or not (born := birth(pid)):
            return
        with self._lock:
            self._servers[pid] = _Server(pid, born, uid, paths, limit)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="labkit-quota", daemon=True)
                self._thread.start()

    def remove(self, pid: int) -> None:
        """Stop watching the server ``pid``."""
        with self._lock:
            self._servers.pop(pid, None)
            self._full.discard(pid)

    def look(self) -> None:
        """Measure the files of each person once, and forbid or allow them to write."""
        with self._lock:
            servers = list(self._servers.values())
        for server in servers:
            if birth(server.pid) != server.born:
                self.remove(server.pid)
                continue
            is_full = occupied_bytes(server.paths, server.uid) > server.limit
            if is_full or server.pid in self._full:
                for pid in watch.tree(server.pid):
                    with contextlib.suppress(OSError):  # it has ended
                        if os.stat(f"/proc/{pid}").st_uid == server.uid:
                            _allow_writing(pid, server.uid, not is_full)
                (self._full.add if is_full else self._full.discard)(server.pid)

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._servers:
                    self._thread = None
                    return
            try:
                self.look()
            except Exception:
                app_log.exception("cannot enforce the limits of homes")
            self._wake.wait(LOOK_SECONDS)


def _allow_writing(pid: int, uid: int, allowed: bool) -> None:
    """Set the size of the files that the process ``pid`` of ``uid`` may write to a few bytes, or to no limit."""
    most = resource.RLIM_INFINITY if allowed else _A_FEW_BYTES
    try:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (most, most))
    except PermissionError:  # root without CAP_SYS_RESOURCE, as in a container: as the person, who could undo it
        own = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]
        limit = ["prlimit", f"--pid={pid}", f"--fsize={'unlimited' if allowed else _A_FEW_BYTES}:"]
        subprocess.run([*own, *limit], capture_output=True)


def occupied_bytes(paths: tuple[Path, ...], uid: int) -> int:
    """Return the bytes on disk of what ``uid`` owns of ``paths``; a file with several names counts once."""
    seen: set[tuple[int, int]] = set()
    total = 0
    for found in (status for path in paths for status in _statuses(path)):
        if found.st_uid == uid and (found.st_dev, found.st_ino) not in seen:
            seen.add((found.st_dev, found.st_ino))
            total += found.st_blocks * _BLOCK
    return total


def _statuses(path: Path) -> Iterator[os.stat_result]:
    """Yield the status of ``path`` and, if it is a folder, of all that is below."""
    with contextlib.suppress(OSError):
        yield os.lstat(path)
    waiting = [os.fspath(path)]
    while waiting:
        with contextlib.suppress(OSError), os.scandir(waiting.pop()) as entries:  # it is gone
            for entry in entries:
                with contextlib.suppress(OSError):
                    yield entry.stat(follow_symlinks=False)
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
