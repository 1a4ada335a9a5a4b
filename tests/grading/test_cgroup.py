"""Cgroups: the order of writes, checked in folders that imitate the kernel's, and in the kernel's own."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mlsys_grading import scratch
from mlsys_grading.fork_server import server
from mlsys_grading.fork_server.client import Ended, ForkServer
from mlsys_grading.fork_server.request import ForkRequest
from mlsys_grading.sandbox import cgroup
from mlsys_grading.sandbox.confine import Sandbox, refusal, start
from mlsys_grading.sandbox.limits import SandboxLimits
from tests.grading import fork_server_work
from tests.grading.test_fork_server import WORK, ask

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="cgroups are Linux's"),
    pytest.mark.xdist_group("sandbox"),
]
GIB = 1 << 30


class Hierarchy:
    """Plain files with the kernel's names, and the two rules of the kernel that a write can break."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.proc = folder / "cgroup", folder / "proc"
        self.written: list[tuple[str, str]] = []
        self.newcomers: list[str] = []  # join the scope just when its members have been listed
        (self.proc / "self").mkdir(parents=True)
        mounts = ["31 23 0:28 / /cpu rw - cgroup none rw,cpu", f"32 23 0:29 / {self.root} rw - cgroup2 none rw"]
        (self.proc / "self/mountinfo").write_text("\n".join(mounts))
        self.populate(self.root / "run.scope", members="10 11")
        self.enter("/run.scope")
        self._mkdtemp, self._rmdir = cgroup.tempfile.mkdtemp, os.rmdir
        monkeypatch.setattr(cgroup, "_PROC", self.proc)
        monkeypatch.setattr(cgroup, "_SYSTEMD", folder / "none")
        monkeypatch.setattr(cgroup, "write", self.write)
        monkeypatch.setattr(cgroup.os, "rmdir", self.rmdir)
        monkeypatch.setattr(cgroup, "tempfile", SimpleNamespace(mkdtemp=self.mkdtemp))
        monkeypatch.setattr(cgroup.Path, "mkdir", lambda path, **options: self.mkdir(path, **options))

    @property
    def scope(self) -> Path:
        return self.root / "run.scope"

    def enter(self, path: str) -> None:
        (self.proc / "self/cgroup").write_text(f"4:memory:/elsewhere\n0::{path}\n")

    def populate(self, folder: Path, members: str = "") -> None:
        os.makedirs(folder, exist_ok=True)
        files = {
            "cgroup.controllers": "cpuset cpu io memory hugetlb pids",
            "cgroup.subtree_control": "",
            "cgroup.type": "domain",
            "cgroup.procs": "\n".join(members.split()) + "\n",
            "memory.swap.max": "max",
            "memory.events": "low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\noom_group_kill 0\n",
            "pids.events": "max 0\n",
        }
        for name, text in files.items():
            (folder / name).write_text(text)

    def mkdir(self, path: Path, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        assert exist_ok or not path.exists()
        if not path.exists():
            self.populate(path)

    def mkdtemp(self, prefix: str, dir: Path) -> str:
        folder = self._mkdtemp(prefix=prefix, dir=dir)
        self.populate(Path(folder))
        return str(folder)

    def rmdir(self, path: Path) -> None:
        """Remove a folder and the kernel's files in it, as cgroup v2 does."""
        assert path.is_relative_to(self.root)
        for name in os.listdir(path):
            os.unlink(path / name)
        self._rmdir(path)

    def write(self, path: Path, value: object) -> None:
        self.written.append((str(path.relative_to(self.root)), str(value)))
        if path.name == "cgroup.procs":
            for other in self.root.rglob("cgroup.procs"):
                left = [pid for pid in other.read_text().split() if pid != str(value)]
                other.write_text("\n".join([*left, *([str(value)] if other == path else [])]))
            if self.newcomers and path.parent.name == "labkit":
                scope = path.parent.parent / "cgroup.procs"
                scope.write_text(f"{scope.read_text()}\n{self.newcomers.pop()}")
        elif path.name == "cgroup.subtree_control" and (path.parent / "cgroup.procs").read_text().split():
            raise OSError(errno.EBUSY, "Device or resource busy")
        else:
            path.write_text(str(value))


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hierarchy:
    return Hierarchy(tmp_path, monkeypatch)


def test_all_members_move_to_a_child_before_children_get_controllers(kernel: Hierarchy) -> None:
    assert cgroup.settle() == ""
    assert kernel.written == [
        ("run.scope/labkit/cgroup.procs", "10"),
        ("run.scope/labkit/cgroup.procs", "11"),
        ("run.scope/cgroup.subtree_control", "+cpu +memory +pids"),
    ]
    kernel.written.clear()
    kernel.enter("/run.scope/labkit")  # where the grader is now
    assert cgroup.settle() == ""
    assert kernel.written == []


def test_a_member_that_forks_meanwhile_moves_as_well(kernel: Hierarchy) -> None:
    kernel.newcomers = ["12", "13"]
    assert cgroup.settle() == ""
    assert (kernel.scope / "labkit/cgroup.procs").read_text().split() == ["10", "11", "13", "12"]
    assert (kernel.scope / "cgroup.subtree_control").read_text() == "+cpu +memory +pids"


def test_settle_gives_up_on_endless_new_members(kernel: Hierarchy) -> None:
    kernel.newcomers = [str(number) for number in range(1000, 2000)]
    assert "its members multiply" in cgroup.settle()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda kernel: (kernel.proc / "self/mountinfo").write_text(""), "no cgroup v2 is mounted"),
        (lambda kernel: kernel.enter("/../other.scope"), "no cgroup v2 is mounted"),
        (lambda kernel: (kernel.scope / "cgroup.controllers").write_text("cpu pids"), "lacks the controller memory"),
        (lambda kernel: None, "systemd-run --user --scope -p Delegate=yes"),
    ],
    ids=["none", "outside the namespace", "a controller short", "systemd's own"],
)
def test_undelegated_cgroup_is_not_divided(
    kernel: Hierarchy, monkeypatch: pytest.MonkeyPatch, change: Any, reason: str
) -> None:
    monkeypatch.setattr(cgroup, "_SYSTEMD", kernel.proc)
    change(kernel)
    assert reason in cgroup.settle()
    assert kernel.written == []
    assert cgroup.make(SandboxLimits()) is None


def test_systemds_mark_of_delegation_is_enough(kernel: Hierarchy, monkeypatch: pytest.MonkeyPatch) -> None:
    def mark(path: Path, name: str) -> bytes:
        if name != "user.delegate":
            raise OSError(errno.ENODATA, "No data available")
        return b"1"

    monkeypatch.setattr(cgroup, "_SYSTEMD", kernel.proc)
    monkeypatch.setattr(cgroup.os, "getxattr", mark)
    assert cgroup.settle() == ""


def test_root_cgroup_keeps_its_members_and_only_the_grader_moves(kernel: Hierarchy) -> None:
    kernel.populate(kernel.root, members="1 2 3")
    (kernel.root / "cgroup.type").unlink()
    (kernel.root / "cgroup.procs").write_text("")  # the kernel lets a root with members enable controllers
    kernel.enter("/")
    assert cgroup.settle() == ""
    assert kernel.written[0] == ("labkit/cgroup.procs", str(os.getpid()))


def test_limits_are_set_before_the_tree_enters(kernel: Hierarchy) -> None:
    cgroup.settle()
    kernel.enter("/run.scope/labkit")
    kernel.written.clear()
    limits = SandboxLimits(memory_bytes=3 * GIB, scratch_bytes=GIB, processes=100, cores=1.5)
    group = cgroup.make(limits)
    assert group is not None
    group.add(77)
    assert group.folder.parent == kernel.scope
    assert [(Path(path).name, value) for path, value in kernel.written] == [
        ("memory.max", str(4 * GIB)),
        ("memory.swap.max", "0"),
        ("memory.oom.group", "1"),
        ("pids.max", "100"),
        ("cpu.max", "150000 100000"),
        ("cgroup.procs", "77"),
    ]
    assert group.processes() == 1
    group.remove()
    assert not group.folder.exists()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(group.lock)


@pytest.mark.parametrize(
    ("file", "text", "excess"),
    [
        ("memory.events", "max 9\noom 1\noom_kill 3\n", "memory"),
        ("memory.events", "max 9\noom 0\noom_kill 0\n", ""),  # reached its limit, and memory was reclaimed
        ("pids.events", "max 2\n", "processes"),
    ],
)
def test_excess_follows_the_kernels_counts(kernel: Hierarchy, file: str, text: str, excess: str) -> None:
    cgroup.settle()
    kernel.enter("/run.scope/labkit")
    group = cgroup.make(SandboxLimits())
    assert group is not None
    assert group.excess() == ""
    (group.folder / file).write_text(text)
    assert group.excess() == excess
    group.remove()


def test_kernel_without_swap_counts_works(kernel: Hierarchy, monkeypatch: pytest.MonkeyPatch) -> None:
    cgroup.settle()
    kernel.enter("/run.scope/labkit")
    populate = kernel.populate

    def without(folder: Path, members: str = "") -> None:
        populate(folder, members)
        (folder / "memory.swap.max").unlink()

    monkeypatch.setattr(kernel, "populate", without)
    group = cgroup.make(SandboxLimits())
    assert group is not None
    assert not (group.folder / "memory.swap.max").exists()
    group.remove()


def test_settle_removes_only_what_killed_graders_left(kernel: Hierarchy, monkeypatch: pytest.MonkeyPatch) -> None:
    cgroup.settle()
    kernel.enter("/run.scope/labkit")
    left, held, young, other = (kernel.scope / name for name in ("labkit-tree-a", "labkit-tree-b", "c", "other"))
    young = kernel.scope / "labkit-tree-c"
    for folder in (left, held, young, other):
        kernel.populate(folder)
    monkeypatch.setattr(scratch.time, "time", lambda: left.stat().st_ctime + 61)
    monkeypatch.setattr(scratch, "abandoned", lambda folder, real=scratch.abandoned: folder != young and real(folder))
    lock = os.open(held, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_SH)
    assert cgroup.settle() == ""
    os.close(lock)
    assert [folder.exists() for folder in (left, held, young, other)] == [False, True, True, True]


class Recorded:
    """A cgroup that writes each call to a pipe."""

    def __init__(self, pipe: int, members: int = 1, excess: str = "") -> None:
        self._pipe, self._members, self._excess = pipe, members, excess

    def add(self, pid: int) -> None:
        os.write(self._pipe, b"add ")

    def processes(self) -> int:
        return self._members

    def excess(self) -> str:
        return self._excess

    def remove(self) -> None:
        os.write(self._pipe, b"remove ")


def test_tree_starts_in_its_cgroup_which_is_removed_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    if reason := refusal():
        pytest.skip(f"this machine allows no sandbox: {reason}")
    read, write = os.pipe()
    keepers = os.dup(write)
    monkeypatch.setattr(cgroup, "make", lambda limits: Recorded(keepers))
    keeper = start(Sandbox(), lambda: os.write(write, b"work ") and None, keep=(write,))
    os.waitpid(keeper, 0)
    os.close(write)
    os.close(keepers)
    with os.fdopen(read) as pipe:
        assert pipe.read() == "add work remove "


@pytest.mark.parametrize(
    ("members", "excess", "work", "told"),
    [
        (1, "memory", lambda: os.kill(os.getpid(), signal.SIGKILL), "ended -9 memory"),
        (1, "", lambda: sys.exit(1), "ended 1"),
        (1, "processes", lambda: None, "ended 0"),  # the work succeeded without the refused processes
        (99, "", lambda: time.sleep(600), "ended -9 processes"),
    ],
)
def test_ended_reason_is_the_cgroups(members: int, excess: str, work: Any, told: str) -> None:
    near, far = socket.socketpair()
    request = ForkRequest("no:name", {}, Sandbox(limits=SandboxLimits(children=98)), wall_seconds=60)
    oversight = server._Oversight(far, request, frozenset())
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except SystemExit:
            os._exit(1)
        os._exit(0)
    oversight.oversee(pid, Recorded(-1, members, excess))  # type: ignore[arg-type]
    far.close()
    with near, near.makefile() as lines:
        assert lines.read().splitlines() == [f"pid {pid}", told]


# The tests below use the real kernel.


@pytest.fixture
def mounted() -> Iterator[Path]:
    """Make a folder in a real cgroup v2 hierarchy, with whatever controllers it has."""
    here = cgroup._own_folder()
    if here is None:
        pytest.skip("no cgroup v2 is mounted")
    folder = here / f"labkit-test-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"no cgroup can be made here: {error}")
    yield folder
    folder.rmdir()


def test_the_kernel_ends_a_tree_that_a_killed_grader_left(mounted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch, "GRACE_SECONDS", 0.0)
    left, held = mounted / "labkit-tree-left", mounted / "labkit-tree-held"
    sleepers = []
    for folder in (left, held):
        folder.mkdir()
        sleeper = subprocess.Popen(["sleep", "600"])
        cgroup.write(folder / "cgroup.procs", sleeper.pid)
        sleepers.append(sleeper)
    if not (left / "cgroup.kill").exists():
        pytest.skip("this kernel has no cgroup.kill (before 5.14)")
    lock = os.open(held, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_SH)
    group = cgroup.Cgroup(held, lock)
    assert group.processes() == 1
    cgroup._sweep(mounted)
    assert not left.exists()
    assert sleepers[0].wait(30) == -signal.SIGKILL
    assert sleepers[1].poll() is None
    assert held.exists()
    group.remove()
    assert sleepers[1].wait(30) == -signal.SIGKILL
    assert not held.exists()


@pytest.fixture
def settled() -> Path:
    if reason := refusal() or cgroup.settle():
        pytest.skip(f"trees get no cgroup of their own here: {reason}")
    here = cgroup._own_folder()
    assert here is not None
    return here.parent


def test_the_kernel_bounds_a_tree_and_says_why(settled: Path) -> None:
    with ForkServer([WORK]) as warm:
        small = Sandbox(limits=SandboxLimits(memory_bytes=200 << 20, scratch_bytes=16 << 20))
        for name in fork_server_work.HOARDS[:-1]:  # descriptors in flight are empty files
            forked, _ = ask(warm, name, sandbox=small)
            with forked:
                assert forked.wait() == Ended(-signal.SIGKILL, "memory"), name
        forked, _ = ask(warm, "breed", sandbox=Sandbox(limits=SandboxLimits(processes=40, children=16)))
        with forked:
            assert forked.wait().why == "processes"
    assert not list(settled.glob("labkit-tree-*"))


def test_no_cgroup_is_left_by_a_tree_that_was_killed(settled: Path) -> None:
    keeper = start(Sandbox(), lambda: time.sleep(600))
    deadline = time.monotonic() + 240
    while not list(settled.glob("labkit-tree-*")) and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(keeper, signal.SIGKILL)
    os.waitpid(keeper, 0)
    assert list(settled.glob("labkit-tree-*"))
    for folder in settled.glob("labkit-tree-*"):
        cgroup.remove(folder)
    assert not list(settled.glob("labkit-tree-*"))
