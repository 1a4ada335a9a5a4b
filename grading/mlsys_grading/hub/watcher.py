"""Thread that keeps servers within the limits that no control group keeps.

It adds up the memory of a server's process tree, which no process can leave, because the tree has its own pid
namespace. A shared page counts in equal parts for the processes that share it (PSS). Files in /dev/shm that no process
has mapped are not counted: only a control group sees those. Between two looks a server may hold more than its limit.

Reference: Linux, Documentation/filesystems/proc.rst (statm, smaps_rollup, oom_score_adj).
"""

from __future__ import annotations

import math
import os
import resource
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from tornado.log import app_log

from mlsys_grading.hub.server_watcher import ServerWatcher
from mlsys_grading.processes import birth, kill_tree
from mlsys_grading.sandbox import watch

LOOK_SECONDS = 0.5
_END_SECONDS = 10.0
_MOST = 1000
_SOONER = 500  # what the kernel adds, of 1000, when it looks for a process to end: kernels go before their server
_SERVER_PROGRAMS = ("mlsys_grading.hub.singleuser", "jupyter-lab")


@dataclass(frozen=True)
class _Server:
    pid: int
    born: int
    memory_bytes: int
    cores: frozenset[int]
    sooner: set[int] = field(default_factory=set)


class LimitWatcher(ServerWatcher[_Server]):
    """Watcher of the memory, the cores and the processes of servers."""

    def add(self, pid: int, memory_bytes: int = 0, cores: float = 0.0, processes: int = 0) -> None:
        """Watch the server ``pid`` from now on; a limit of 0 is kept by a control group, or does not exist."""
        if not (born := birth(pid)):
            return
        for each in watch.tree(pid) if processes else ():
            # Without CAP_SYS_RESOURCE, a restarted Hub may not touch other users' processes; their limit still holds.
            with suppress(ProcessLookupError, PermissionError):
                resource.prlimit(each, resource.RLIMIT_NPROC, (processes, processes))  # of the person's user id
        with self._lock:
            self._watch(_Server(pid, born, memory_bytes, self._choose(pid, cores)))

    def seconds(self) -> float:
        return LOOK_SECONDS

    def look_at(self, server: _Server) -> None:
        """Keep a server on its cores, and end its largest kernel if it holds too much."""
        pids = watch.tree(server.pid)
        if server.cores:
            _keep_on(pids, server.cores)
        main = _main_processes(server.pid)
        _offer(server, set(pids).difference(main))
        if server.memory_bytes and _resident_bytes(pids) > server.memory_bytes:
            _bound_memory(server, pids, main)

    def _choose(self, pid: int, cores: float) -> frozenset[int]:
        """Choose as many of our cores as the limit needs, those with the fewest servers."""
        ours, count = os.sched_getaffinity(0), math.ceil(cores)
        if not 0 < count < len(ours):
            return frozenset()
        with suppress(ProcessLookupError):
            now = os.sched_getaffinity(pid)
            if len(now) == count:
                return frozenset(now)  # a restarted Hub leaves it where it is
        load = {core: sum(core in server.cores for server in self._servers.values()) for core in ours}
        return frozenset(sorted(ours, key=lambda core: (load[core], core))[:count])


def _bound_memory(server: _Server, pids: Sequence[int], main: list[int]) -> None:
    held = {pid: _share_bytes(pid) for pid in pids}
    if (total := sum(held.values())) <= server.memory_bytes:
        return  # the first count was too high: it had shared pages once per process
    kernels = {child: watch.tree(child) for pid in main for child in watch.children(pid) if child not in main}
    largest = max(kernels, key=lambda root: sum(held.get(pid, 0) for pid in kernels[root]), default=server.pid)
    used, limit = total / 2**30, server.memory_bytes / 2**30
    line = "server %d held %.2f GiB, more than its limit of %.2f: ended its largest kernel, process %d"
    app_log.warning(line, server.pid, used, limit, largest)
    with suppress(psutil.NoSuchProcess, psutil.TimeoutExpired):
        ending = psutil.Process(largest)
        kill_tree(largest)
        ending.wait(_END_SECONDS)  # before its memory is free, the next look would end another kernel


def _main_processes(pid: int) -> list[int]:
    """Return the processes from ``pid`` to the server itself; other children of these are orphans, adopted by them."""
    chain = [pid]
    while not _is_server(chain[-1]):
        if not (below := watch.children(chain[-1])):
            return [pid]
        chain.append(min(below, key=birth))
    return chain


def _is_server(pid: int) -> bool:
    with suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")
        return any(os.path.basename(word).startswith(_SERVER_PROGRAMS) for word in words[:4])
    return False


def _offer(server: _Server, kernels: set[int]) -> None:
    """Make the kernel's out-of-memory killer choose ``kernels``: the notebook server itself may be the largest."""
    for pid in kernels - server.sooner:
        with suppress(OSError):
            inherited = int(Path(f"/proc/{server.pid}/oom_score_adj").read_text())  # a container's may be high itself
            Path(f"/proc/{pid}/oom_score_adj").write_text(str(min(inherited + _SOONER, _MOST)))
            server.sooner.add(pid)
    server.sooner.intersection_update(kernels)


def _keep_on(pids: Iterable[int], cores: frozenset[int]) -> None:
    """Move each thread back to ``cores``: a process may have changed its own affinity."""
    for pid in pids:
        with suppress(OSError):
            for thread in map(int, os.listdir(f"/proc/{pid}/task")):
                if not os.sched_getaffinity(thread) <= cores:
                    os.sched_setaffinity(thread, cores)


def _resident_bytes(pids: Iterable[int]) -> int:
    """Add up resident pages: an upper bound, because a shared page counts for each process."""
    total = 0
    for pid in pids:
        with suppress(psutil.Error):
            total += psutil.Process(pid).memory_info().rss
    return total


def _share_bytes(pid: int) -> int:
    with suppress(OSError), open(f"/proc/{pid}/smaps_rollup") as lines:
        return sum(int(line.split()[1]) << 10 for line in lines if line.startswith(("Pss:", "SwapPss:")))
    return _resident_bytes([pid])
