"""Limits of one person's server: memory, cores, processes.

Where the Hub may divide a control group, of version 2 or 1, the kernel keeps the limits: it counts each page, ends the
largest process of a server that needs too much, and shares out processor time. Elsewhere a watcher keeps them
(:mod:`mlsys_grading.hub.watcher`): twice a second it ends the largest kernel of a server over its limit, and moves
processes back to their cores. In both cases the server and its neighbours live on, and
:mod:`mlsys_labkit._frontends.kernel_ended` explains the end of the kernel in JupyterLab.

Reference: Linux, Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/{memory,pids}.rst; "CFS Bandwidth Control".
"""

from __future__ import annotations

import functools
import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from mlsys_grading.hub.watcher import LimitWatcher
from mlsys_grading.sandbox import cgroup, watch
from mlsys_labkit._base import limits as machine

Resource = Literal["memory", "cpu", "pids"]
_RESOURCES: tuple[Resource, ...] = ("memory", "cpu", "pids")
_SERVER = "labkit-server-"
_PERIOD_US = 100_000
_PATIENCE_SECONDS = 5.0


@dataclass(frozen=True)
class ServerLimits:
    """Limits of one server with all its kernels; 0 is no limit. ``processes`` counts threads, too.

    Example:
        >>> ServerLimits(memory_bytes=4 << 30, cores=2)
        ServerLimits(memory_bytes=4294967296, cores=2, processes=4096)
    """

    memory_bytes: int = 0
    cores: float = 0.0
    processes: int = 4096


@dataclass(frozen=True)
class Enforcement:
    """Division of the limits between control groups and the watcher.

    Attributes:
        folders: the control group to divide, for each resource that the kernel limits; the watcher limits the others.
        why_not: the reason why control groups of version 2 do not limit all of them; "" if they do.
    """

    folders: dict[Resource, Path]
    version: Literal[0, 1, 2]
    why_not: str

    def __str__(self) -> str:
        by_group = [name for name in _RESOURCES if name in self.folders]
        by_watcher = [name for name in _RESOURCES if name not in self.folders]
        told = [f"{', '.join(by_group)} by cgroup v{self.version}"] if by_group else []
        told += [f"{', '.join(by_watcher)} by a watcher"] if by_watcher else []
        return "; ".join(told)


def enforcement(prepare: bool = False) -> Enforcement:
    """Find out how limits are kept on this machine. ``prepare`` moves this process to divide a delegated cgroup v2."""
    why_not = cgroup.settle() if prepare else cgroup.why_not()
    if not why_not:
        place = cgroup.siblings() or Path()
        return Enforcement(dict.fromkeys(_RESOURCES, place), 2, "")
    folders = {name: folder for name in _RESOURCES if (folder := machine.group_folder(name)) and _divisible(folder)}
    return Enforcement(folders, 1 if folders else 0, why_not)


def confine(pid: int, limits: ServerLimits) -> None:
    """Limit the server with process ``pid`` and everything that it starts, until :func:`release`.

    A restarted Hub calls this again for the servers that it finds, with the same effect. A process that has ended is no
    error. Raises OSError if the kernel refuses a group that it has offered.
    """
    here = _prepared()
    for resource, folder in here.folders.items():
        leaf = _leaf(folder, pid)
        leaf.mkdir(exist_ok=True)
        for name, value in _values(resource, here.version, limits).items():
            if (leaf / name).exists():  # a kernel may not count swap
                cgroup.write(leaf / name, value)
    for folder in set(here.folders.values()):
        for member in watch.tree(pid):
            with suppress(ProcessLookupError):
                cgroup.write(_leaf(folder, pid) / "cgroup.procs", member)
    _watcher().add(
        pid,
        memory_bytes=0 if "memory" in here.folders else limits.memory_bytes,
        cores=0 if "cpu" in here.folders else limits.cores,
        processes=0 if "pids" in here.folders else limits.processes,
    )


def release(pid: int) -> None:
    """End the processes that a stopped server has left, and remove its limits."""
    _watcher().remove(pid)
    for folder in set(_prepared().folders.values()):
        _remove(_leaf(folder, pid))


@functools.cache
def _prepared() -> Enforcement:
    found = enforcement(prepare=True)
    for folder in set(found.folders.values()):
        for leaf in folder.glob(f"{_SERVER}*"):  # of servers that ended while no Hub ran
            if not _members(leaf):
                _remove(leaf)
    return found


@functools.cache
def _watcher() -> LimitWatcher:
    return LimitWatcher()


def _leaf(folder: Path, pid: int) -> Path:
    return folder / f"{_SERVER}{pid}"


def _values(resource: Resource, version: int, limits: ServerLimits) -> dict[str, object]:
    held, quota = limits.memory_bytes, int(limits.cores * _PERIOD_US)
    if resource == "memory" and held:
        if version == 2:
            return {"memory.max": held, "memory.swap.max": 0, "memory.oom.group": 0}
        # In this order: memory and swap together may never be less than memory.
        return {"memory.limit_in_bytes": held, "memory.memsw.limit_in_bytes": held}
    if resource == "cpu" and quota:
        if version == 2:
            return {"cpu.max": f"{quota} {_PERIOD_US}"}
        return {"cpu.cfs_period_us": _PERIOD_US, "cpu.cfs_quota_us": quota}
    return {"pids.max": limits.processes} if resource == "pids" and limits.processes else {}


def _divisible(folder: Path) -> bool:
    """Return True if a group can be made in ``folder``, by trying it: the mount may refuse even root."""
    trial = folder / f"labkit-trial-{os.getpid()}"
    try:
        trial.mkdir()
        trial.rmdir()
    except OSError:
        return False
    return True


def _members(leaf: Path) -> list[int]:
    with suppress(OSError):
        return [int(pid) for pid in (leaf / "cgroup.procs").read_text().split()]
    return []


def _remove(leaf: Path) -> None:
    """End the members of a group one by one and remove it: version 1 has no cgroup.kill."""
    until = time.monotonic() + _PATIENCE_SECONDS
    while leaf.exists() and time.monotonic() < until:
        for pid in _members(leaf):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with suppress(OSError):
            leaf.rmdir()
            return
        time.sleep(0.01)
