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
from dataclasses import dataclass
from pathlib import Path

from mlsys_grading.hub.disk import disk_usage
from mlsys_grading.hub.server_watcher import ServerWatcher
from mlsys_grading.processes import birth
from mlsys_grading.sandbox import watch

LOOK_SECONDS = 10.0
_A_FEW_BYTES = 4096  # a new kernel writes a file of its addresses


@dataclass(frozen=True)
class _Server:
    pid: int
    born: int
    uid: int
    paths: tuple[Path, ...]
    limit: int


class HomeWatcher(ServerWatcher[_Server]):
    """Watcher of the files of people with a server."""

    def __init__(self) -> None:
        super().__init__()
        self._full: set[int] = set()  # people who may not write now, by their uids

    def add(self, pid: int, uid: int, paths: tuple[Path, ...], limit: int) -> None:
        """Keep the files of ``uid``, in ``paths``, within ``limit`` bytes while ``pid`` runs; 0: no limit."""
        if limit and (born := birth(pid)):
            self._watch(_Server(pid, born, uid, paths, limit))

    def seconds(self) -> float:
        return LOOK_SECONDS

    def look_at(self, server: _Server) -> None:
        """Measure the files of the server's person, and forbid or allow them to write."""
        is_full = sum(disk_usage(server.paths)) > server.limit
        if is_full or server.uid in self._full:
            for pid in watch.tree(server.pid):
                with contextlib.suppress(OSError):  # it has ended
                    if os.stat(f"/proc/{pid}").st_uid == server.uid:
                        _allow_writing(pid, server.uid, not is_full)
            (self._full.add if is_full else self._full.discard)(server.uid)


def _allow_writing(pid: int, uid: int, allowed: bool) -> None:
    """Set the size of the files that the process ``pid`` of ``uid`` may write to a few bytes, or to no limit."""
    most = resource.RLIM_INFINITY if allowed else _A_FEW_BYTES
    try:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (most, most))
    except PermissionError:  # root without CAP_SYS_RESOURCE, as in a container: as the person, who could undo it
        own = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]
        limit = ["prlimit", f"--pid={pid}", f"--fsize={'unlimited' if allowed else _A_FEW_BYTES}:"]
        subprocess.run([*own, *limit], capture_output=True)
