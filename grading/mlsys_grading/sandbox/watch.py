"""Memory that a tree of processes holds, for machines where no cgroup counts it: theirs, and the kernel's for them.

Every thread is read, because a process may outlive its first thread, whose entries are then empty, and a thread may
have open files of its own. A process that cannot be read counts as holding unlimited memory; ordinary ones can be.

Reference: Linux, Documentation/filesystems/proc.rst (smaps_rollup, task/TID/children, map_files).
"""

from __future__ import annotations

import os
from collections.abc import Container, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_RESIDENT = ("VmRSS:", "VmSwap:", "HugetlbPages:", "VmPTE:")
_TABLES = ("VmPTE:",)
_OWN = ("Private_Clean:", "Private_Dirty:", "Private_Hugetlb:", "Swap:")
_BLOCK = 512  # of st_blocks
_HIDDEN = 1 << 62
_EXITING = 0x4  # PF_EXITING, of the flags in /proc/PID/stat
_IN_MEMORY = (b"/memfd:", b"/dev/zero (deleted)")  # how maps names files of memfd_create, and shared pages without one
_AREA_BYTES = 256  # of a mapping, in the kernel
_PIPE_BYTES, _WATCH_BYTES = 64 << 10, 200
# What a socket holds unread at most, in both directions: ``sandbox.proc`` bounds TCP's, and the default the others'.
_SOCKET_BYTES = 512 << 10
_Files = dict[tuple[int, int], int]


def is_ending(pid: int) -> bool:
    """Return whether a process is on its way out: it closes its sockets some time before it can be waited for."""
    with suppress(OSError):  # it is gone
        after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return bool(int(after_name[6]) & _EXITING)
    return True


def tree(root: int) -> list[int]:
    """Return ``root`` and all its descendants. Orphans within a pid namespace are children of its first process."""
    found, waiting = [], [root]
    while waiting:
        pid = waiting.pop()
        found.append(pid)
        waiting += children(pid)
    return found


def children(pid: int) -> list[int]:
    """Return the processes that the threads of ``pid`` have started; none if it has ended."""
    found: list[int] = []
    for place in _threads(pid):
        with suppress(OSError):  # it has ended
            found += map(int, Path(f"{place}/children").read_text().split())
    return found


def may_hold_bytes(pids: Sequence[int]) -> int:
    """Return an upper bound of ``held_bytes``, which counts shared pages more than once and is quick to read.

    Only at most, give or take a few megabytes a process: some kernels keep these counters for each processor apart.
    """
    return sum(map(_resident_bytes, pids)) + _shared_bytes(pids)


def held_bytes(root: int) -> int:
    """Measure the memory that a tree holds for itself, without what it shares with the process it was forked from.

    Private pages and swap of each process, and what any of them has open or mapped of memory that can be shared,
    whether it is in anybody's resident set or not.
    """
    pids = tree(root)
    return sum(map(_private_bytes, pids)) + sum(map(_table_bytes, pids)) + _shared_bytes(pids)


@dataclass(frozen=True)
class OpenFiles:
    """Memory that a tree's open files hold in the kernel, counted nowhere else.

    Attributes:
        nbytes: at most, in pipes, in sockets (also those that no process has open) and in lists of watched files.
        sockets: of the tree's network.
        in_flight: descriptors that were sent over sockets and not yet received, of files that may be nobody's.
    """

    nbytes: int
    sockets: int
    in_flight: int


def open_files(root: int, but: Container[int] = ()) -> OpenFiles:
    """Measure the open files of a tree; ``but`` are inodes of sockets whose other end is trusted."""
    seen: set[str] = set()
    pipes = watches = in_flight = 0
    for place in (place for pid in tree(root) for place in _threads(pid)):
        for name in _names(f"{place}/fd"):
            with suppress(OSError):
                target = os.readlink(f"{place}/fd/{name}")
                kind, _, inode = target.partition(":")
                if kind == "pipe" and target not in seen:
                    seen.add(target)
                    pipes += 1
                elif kind == "socket" and target not in seen and int(inode[1:-1]) not in but:
                    seen.add(target)
                    lines = Path(f"{place}/fdinfo/{name}").read_text().splitlines()
                    in_flight += sum(int(line.split()[1]) for line in lines if line.startswith("scm_fds:"))
                elif target == "anon_inode:[eventpoll]":
                    watches += Path(f"{place}/fdinfo/{name}").read_text().count("tfd:")
    sockets = _sockets_used(root)
    nbytes = pipes * _PIPE_BYTES + watches * _WATCH_BYTES + sockets * _SOCKET_BYTES
    return OpenFiles(nbytes, sockets, in_flight)


def _sockets_used(pid: int) -> int:
    """Count the sockets of a network: open ones, connections nobody has accepted, closed ones with unsent data."""
    for place in _threads(pid):
        with suppress(OSError, IndexError, ValueError):
            return int(Path(f"{place}/net/sockstat").read_text().split()[2])
    return 0


def _table_bytes(pid: int) -> int:
    for place in _threads(pid):
        with suppress(OSError):
            return _sum(f"{place}/status", _TABLES)
    return 0


def _threads(pid: int) -> list[str]:
    """List the folders of a process's threads, the first thread's last."""
    return [f"/proc/{pid}/task/{name}" for name in reversed(_names(f"/proc/{pid}/task"))]


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _resident_bytes(pid: int) -> int:
    return max(map(_resident_here, _threads(pid)), default=0)


def _resident_here(place: str) -> int:
    try:
        return _sum(f"{place}/status", _RESIDENT)
    except OSError:
        return 0


def _private_bytes(pid: int) -> int:
    for place in _threads(pid):
        try:
            return _sum(f"{place}/smaps_rollup", _OWN)
        except PermissionError:
            if _resident_here(place):
                return _HIDDEN
        except OSError:
            continue  # this thread has ended
    return 0


def _sum(path: str, names: tuple[str, ...]) -> int:
    with open(path) as lines:
        return sum(int(line.split()[1]) << 10 for line in lines if line.startswith(names))


def _shared_bytes(pids: Sequence[int]) -> int:
    mapped: _Files = {}
    opened: _Files = {}
    for pid in pids:
        places = _threads(pid)
        for place in places:
            opened |= _open_files(place)
        mapped |= _mapped_files(pid, places)
    return sum((mapped | opened).values())


def _open_files(place: str) -> _Files:
    """Measure open files of memfd_create."""
    sizes = {}
    for name in _names(f"{place}/fd"):
        path = f"{place}/fd/{name}"
        with suppress(OSError):
            if os.readlink(path).startswith("/memfd:"):
                status = os.stat(path)
                sizes[status.st_dev, status.st_ino] = status.st_blocks * _BLOCK
    return sizes


def _mapped_files(pid: int, places: Sequence[str]) -> _Files:
    """Measure mapped memory that can be shared: its file may be closed, and its pages not resident.

    And, by the number of the process, the kernel's own records of the mappings.
    """
    sizes: _Files = {}
    for place in places:
        try:
            maps = Path(f"{place}/maps").read_bytes()
        except PermissionError:
            return {(0, pid): _HIDDEN} if _resident_here(place) else {}
        except OSError:
            continue
        if not maps:
            continue  # this thread has ended
        sizes[-1, pid] = maps.count(b"\n") * _AREA_BYTES
        if any(name in maps for name in _IN_MEMORY):
            for line in maps.splitlines():
                span, _, _, device, inode, *name = line.split(maxsplit=5)
                if name and name[0].startswith(_IN_MEMORY):
                    major, minor = (int(part, 16) for part in device.split(b":"))
                    key = os.makedev(major, minor), int(inode)
                    sizes[key] = _mapped_bytes(pid, span.decode(), sizes.get(key, 0))
        break
    return sizes


def _mapped_bytes(pid: int, span: str, before: int) -> int:
    """Measure one file: its stored bytes, if the kernel shows them; else how much of it is mapped so far."""
    start, end = (int(part, 16) for part in span.split("-"))
    try:
        return os.stat(f"/proc/{pid}/map_files/{start:x}-{end:x}").st_blocks * _BLOCK
    except OSError:
        return before + end - start
