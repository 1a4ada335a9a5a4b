"""A cgroup v2 for each process tree, on machines where a part of the hierarchy is delegated to the grader.

The kernel then counts what a watcher can only estimate: all memory of the tree, the kernel's on its behalf and that in
sockets, queues and files as well, from the first page on. The cgroup G in which the grader starts then contains

- ``G/labkit``: the grader itself and its fork servers, because a cgroup with members may not enable controllers for its
  children;
- ``G/labkit-tree-xxxxxxxx``: one tree, locked by its keeper. A killed grader leaves some, and the next sweeps them.

G has to be delegated: under systemd by ``systemd-run --user --scope -p Delegate=yes labkit grade ...``; in a container,
by a hierarchy that can be written. Reference: Linux, Documentation/admin-guide/cgroup-v2.rst, "Delegation" and "No
Internal Process Constraint"; systemd, Control Group APIs and Delegation.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from mlsys_grading import scratch
from mlsys_grading.sandbox.limits import SandboxLimits

_CONTROLLERS = ("cpu", "memory", "pids")
_OURS, _TREE = "labkit", "labkit-tree-"
_PERIOD_US = 100_000
_TRIES = 20
_PROC = Path("/proc")
_SYSTEMD = Path("/run/systemd/system")


@dataclass(frozen=True)
class Cgroup:
    """One tree's cgroup; ``lock`` is an open descriptor of its folder."""

    folder: Path
    lock: int

    def add(self, pid: int) -> None:
        """Add a process, and with it all that it will start."""
        write(self.folder / "cgroup.procs", pid)

    def processes(self) -> int:
        """Return the number of processes in it now."""
        return len((self.folder / "cgroup.procs").read_text().split())

    def excess(self) -> str:
        """Return the resource whose limit the tree has exceeded: "memory", "processes" or ""."""
        if _events(self.folder / "memory.events").get("oom_kill"):
            return "memory"
        return "processes" if _events(self.folder / "pids.events").get("max") else ""

    def remove(self) -> None:
        """End the processes in the cgroup, and remove it."""
        remove(self.folder)
        os.close(self.lock)


def settle() -> str:
    """Make the cgroup of this process ready to hold trees, and remove what killed graders left.

    The grader calls this before it starts a fork server; further calls do nothing new. Returns why trees get no cgroup
    here, in one sentence, or ""; without cgroups a watcher limits them.
    """
    if reason := why_not():
        return reason
    here = _own_folder()
    assert here is not None
    try:
        if here.name != _OURS:
            _divide(here)
            here /= _OURS
        _sweep(here.parent)
    except OSError as error:
        return f"the cgroup {here} cannot be divided ({error})"
    return ""


def why_not() -> str:
    """Return why ``settle`` would not divide the cgroup of this process; "" if it would try. Nothing is changed."""
    here = _own_folder()
    if here is None:
        return "no cgroup v2 is mounted"
    if here.name == _OURS:
        return ""
    try:
        missing = set(_CONTROLLERS) - set((here / "cgroup.controllers").read_text().split())
    except OSError as error:
        return f"the cgroup {here} cannot be divided ({error})"
    if missing:
        return f"the cgroup {here} lacks the controller {min(missing)}"
    if not _is_delegated(here):
        return f"the cgroup {here} is not delegated: start with systemd-run --user --scope -p Delegate=yes"
    return ""


def siblings() -> Path | None:
    """Return the folder that new cgroups go into; None before ``settle`` has made one ready."""
    here = _own_folder()
    return here.parent if here is not None and here.name == _OURS else None


def make(limits: SandboxLimits) -> Cgroup | None:
    """Make a cgroup for one tree; None where ``settle`` found a reason. Raises OSError if the kernel refuses it."""
    place = siblings()
    if place is None:
        return None
    folder = Path(tempfile.mkdtemp(prefix=_TREE, dir=place))
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(lock, fcntl.LOCK_SH)
    # The watcher counts no scratch files, which have a bound of their own; here they are memory like any other.
    write(folder / "memory.max", limits.memory_bytes + limits.scratch_bytes)
    if (folder / "memory.swap.max").exists():  # where the kernel counts swap
        write(folder / "memory.swap.max", 0)
    write(folder / "memory.oom.group", 1)
    write(folder / "pids.max", limits.processes)
    write(folder / "cpu.max", f"{int(limits.cores * _PERIOD_US)} {_PERIOD_US}")
    return Cgroup(folder, lock)


def _own_folder() -> Path | None:
    """Return the folder of the cgroup v2 that this process is in."""
    try:
        lines = (_PROC / "self/cgroup").read_text().splitlines()
        mounts = (_PROC / "self/mountinfo").read_text().splitlines()
    except OSError:
        return None
    path = next((line[3:] for line in lines if line.startswith("0::")), "/..")
    for line in mounts:
        fields, _, kind = line.partition(" - ")
        root, place = fields.split()[3:5]
        if kind.startswith("cgroup2 ") and root == "/" and ".." not in path.split("/"):
            return Path(place + path)
    return None


def _is_delegated(folder: Path) -> bool:
    """Return True if this part of the hierarchy is delegated to us. Under systemd, write access is not enough."""
    files = (folder, folder / "cgroup.procs", folder / "cgroup.subtree_control")
    if not all(os.access(path, os.W_OK) for path in files):
        return False
    if not _SYSTEMD.exists():
        return True
    for name in ("user.delegate", "trusted.delegate"):
        with contextlib.suppress(OSError):
            if os.getxattr(folder, name) == b"1":
                return True
    return False


def _divide(folder: Path) -> None:
    """Move the members of the cgroup into a child, and enable the controllers for its children."""
    ours = folder / _OURS
    ours.mkdir(exist_ok=True)
    # The hierarchy's own root may have members, the kernel's among them.
    is_root = not (folder / "cgroup.type").exists()
    for _ in range(_TRIES):
        for pid in [os.getpid()] if is_root else (folder / "cgroup.procs").read_text().split():
            with contextlib.suppress(ProcessLookupError):
                write(ours / "cgroup.procs", pid)
        try:
            write(folder / "cgroup.subtree_control", " ".join(f"+{name}" for name in _CONTROLLERS))
            return
        except OSError as error:
            if error.errno != errno.EBUSY:  # a member has had a child meanwhile
                raise
    raise OSError(errno.EBUSY, "its members multiply")


def _sweep(folder: Path) -> None:
    for tree in folder.glob(f"{_TREE}*"):
        if scratch.abandoned(tree):
            remove(tree)


def remove(folder: Path) -> None:
    """End what is in a cgroup, and take it away; one that is gone already is fine."""
    for _ in range(_TRIES):
        try:
            os.rmdir(folder)
            return
        except FileNotFoundError:
            return
        except OSError:  # it has members, or one has just ended
            with contextlib.suppress(OSError):
                write(folder / "cgroup.kill", 1)
            time.sleep(0.01)


def _events(path: Path) -> dict[str, int]:
    return {name: int(count) for name, count in (line.split() for line in path.read_text().splitlines())}


def write(path: Path, value: object) -> None:
    """Write ``value`` to one of the kernel's files."""
    with open(path, "w") as file:
        file.write(str(value))
