"""All that two sandboxes can both touch, each member tried: no bits pass, and no process looks after itself."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import multiprocessing.synchronize
import os
import platform
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from errno import EAGAIN, ENOMEM, ENOTTY, ETIMEDOUT
from pathlib import Path
from typing import Any

import psutil
import pytest

from mlsys_grading.fork_server.client import ForkServer
from mlsys_grading.fork_server.request import ForkRequest
from mlsys_grading.sandbox import syscalls
from mlsys_grading.sandbox.confine import Sandbox
from mlsys_labkit.memory.process import resident_bytes
from tests.conftest import ROOT
from tests.grading.escape_helpers import BOTH, ENOSYS, EPERM, call, numbers, without_rights
from tests.grading.test_sandbox import inside

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="a sandbox takes Linux's namespaces"),
    pytest.mark.xdist_group("sandbox"),
    pytest.mark.usefixtures("sandbox_allowed"),
]


def machine_files() -> dict[str, str]:
    """Return the text of every file below /proc that belongs to no process."""
    found = {}
    for folder, folders, files in os.walk("/proc"):
        if folder == "/proc":
            folders[:] = [name for name in folders if not name.isdigit()]
        for name in files:
            path = f"{folder}/{name}"
            if not os.path.islink(path):
                try:
                    found[path] = Path(path).read_text(errors="replace")[:10_000]
                except OSError:
                    found[path] = "unreadable"
    return found


@BOTH
def test_proc_says_nothing_of_the_machine_that_changes(confined: Callable[..., Any]) -> None:
    def probe() -> list[Any]:
        before = machine_files()
        held = [os.pipe() for _ in range(200)]  # moves file-nr, and the time moves the rest
        ballast = bytearray(os.urandom(1 << 20)) * 32
        time.sleep(0.05)
        after = machine_files()
        del held, ballast
        return [sorted(path for path in before if before[path] != after[path]), len(before), before["/proc/cpuinfo"]]

    assert len({Path("/proc/sys/fs/file-nr").exists(), Path("/proc/vmstat").exists()}) == 1
    changed, count, cpus = confined(probe)
    assert changed == []
    assert count > 10
    assert "processor" in cpus


@BOTH
def test_a_process_cannot_write_below_proc(confined: Callable[..., Any]) -> None:
    """Otherwise a process of the grader's own user resets the kernel's record of its memory."""

    def probe() -> list[str]:
        told = []
        for name in ("clear_refs", "oom_score_adj", "comm", "mem"):
            try:
                os.close(os.open(f"/proc/self/{name}", os.O_WRONLY))
                told.append(name)
            except OSError:
                continue
        return told

    assert confined(probe) == []


def test_root_gives_every_sandbox_devices_of_its_own() -> None:
    if os.geteuid():
        pytest.skip("only root may make device files")

    def device() -> list[list[int]]:
        return [[found.st_dev, found.st_ino, found.st_rdev] for found in map(os.stat, ("/dev/null", "/dev/zero"))]

    ours = device()
    theirs = inside(device)
    assert [each[2] for each in theirs] == [each[2] for each in ours]
    assert all(each[:2] != own[:2] for each, own in zip(theirs, ours, strict=True))
    assert inside(lambda: os.read(os.open("/dev/zero", os.O_RDONLY), 2).hex()) == "0000"
    assert inside(lambda: os.write(os.open("/dev/null", os.O_WRONLY), b"abc")) == 3
    assert inside(lambda: os.open("/dev/other", os.O_CREAT | os.O_WRONLY)) in ("OSError", "PermissionError")


@BOTH
def test_pages_in_memory_are_not_told(confined: Callable[..., Any]) -> None:
    known = numbers(platform.machine())

    def probe() -> list[Any]:
        file = os.open("/bin/sh", os.O_RDONLY)
        room = ctypes.create_string_buffer(64)
        part = (ctypes.c_size_t * 2)(ctypes.addressof(room), 64)
        given = (known["preadv2"], file, ctypes.addressof(part), 1, 0, 0)
        own = mmap.mmap(-1, 1 << 16)
        address = ctypes.addressof(ctypes.c_char.from_buffer(own))
        return [
            call(*given, 0),
            call(*given, 8),  # RWF_NOWAIT
            call(*given, 0x80),  # RWF_DONTCACHE
            call(known["madvise"], address, 1 << 16, 20),
            call(known["madvise"], address, 1 << 16, 21),
            call(known["madvise"], address, 1 << 16, 4),
            call(known["madvise"], address, 1 << 16, 12),  # MADV_MERGEABLE
            call(known["prctl"], 67, 1, 0, 0, 0),  # PR_SET_MEMORY_MERGE
            call(known["madvise"], address, 1 << 16, 25),  # MADV_COLLAPSE
            call(known["mmap"], 0, 1 << 21, 3, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x40000, -1, 0),
            call(known["memfd_create"], address, 4),
            *(call(known["ioctl"], file, kind << 8, 0) for kind in b"fXR\x94"),
            call(known.get("cachestat", 451), file, 0, 0, 0),
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED),
        ]

    assert confined(probe) == [0, 95, 95, 22, 22, 0, 22, EPERM, 22, ENOMEM, ENOMEM, *[ENOTTY] * 4, EPERM, None]


@BOTH
def test_the_request_to_die_with_the_keeper_is_not_taken_back(confined: Callable[..., Any]) -> None:
    prctl = numbers(platform.machine())["prctl"]
    assert confined(lambda: [call(prctl, 1, 0), call(prctl, 1, signal.SIGUSR1), call(prctl, 15, 0)]) == [EPERM, 0, 14]


WITNESSED = {
    "execve": "os.execv('/bin/true', ['true'])",
    "fork": "os.fork()",
    "spawn": "os.posix_spawn('/bin/true', ['true'], {})",
    "memfd": "os.memfd_create('x')",
    "pipe": "os.pipe()",
    "socket": "socket.socketpair()",
    "network": "socket.socket()",
    "shared": "mmap.mmap(-1, 4096)",
    "shared file": "mmap.mmap(os.open('/bin/sh', os.O_RDONLY), 4096, mmap.MAP_SHARED, mmap.PROT_READ)",
}


@BOTH
def test_a_measured_process_keeps_all_in_its_own_memory(confined: Callable[..., Any]) -> None:
    def probe() -> dict[str, str]:
        import socket  # noqa: F401

        syscalls.install_witness()
        told = {}
        for name, code in WITNESSED.items():
            try:
                exec(f"import mmap, os, socket\n{code}")
                told[name] = "allowed"
            except PermissionError:
                told[name] = "refused"
        done: list[int] = []
        thread = threading.Thread(target=done.append, args=(1,))
        thread.start()
        thread.join()
        mmap.mmap(-1, 1 << 20, mmap.MAP_PRIVATE).write(b"x")
        return told | {"thread": str(done)}

    assert confined(probe) == dict.fromkeys(WITNESSED, "refused") | {"thread": "[1]"}


@BOTH
def test_a_rank_neither_waits_on_shared_memory_nor_wakes_others(confined: Callable[..., Any]) -> None:
    """Every process has the pages of /bin/sh: who waits on one of them can be woken from another sandbox."""
    futex = numbers(platform.machine())["futex"]

    def probe() -> list[Any]:
        page = mmap.mmap(os.open("/bin/sh", os.O_RDONLY), 4096, access=mmap.ACCESS_COPY)
        word = ctypes.c_uint32.from_buffer(page)
        moment = (ctypes.c_long * 2)(0, 1_000_000)
        pair = ctypes.addressof(word), ctypes.addressof(moment)

        def tell() -> list[int]:
            """Wait with a deadline, for the word's value and for another; then in private, and wake others."""
            waits = [call(futex, pair[0], way, word.value + more, pair[1], 0, -1) for way in (0, 9) for more in (0, 1)]
            private = call(futex, pair[0], 128, word.value, pair[1], 0, -1)
            return [*waits, private, call(futex, pair[0], 1, 1), call(futex, pair[0], 129, 1)]

        before = tell()
        syscalls.install_apart()
        after = tell()
        for_ever = [call(futex, pair[0], way, word.value, 0, 0, -1) for way in (0, 9, 256)]
        halves = [call(futex, pair[0], 0, word.value, deadline, 0, -1) for deadline in (1 << 12, 1 << 32)]
        own = multiprocessing.get_context("fork").Semaphore(0)
        gave_up = after[0] == ETIMEDOUT and not own.acquire(timeout=60)  # it would try again for ever
        child = os.fork()
        if child == 0:
            own.release()
            os._exit(0)
        woken = own.acquire()
        other = call(futex, pair[0], 8, 0)
        return [before, after, for_ever, halves, gave_up, woken, other, os.waitpid(child, 0)[1]]

    again, late = EAGAIN, ETIMEDOUT
    before, after, for_ever, halves, *rest = confined(probe)
    assert before == [late, again, late, again, late, 0, 0]
    assert after == [late, late, late, late, late, 0, 0]  # whatever the word holds
    assert [for_ever, halves] == [[again] * 3, [late] * 2]
    assert rest == [True, True, ENOSYS, 0]


def as_rank(probe: Callable[[], Any]) -> Any:
    return inside(probe, Sandbox(shows_processes=False))


@pytest.mark.parametrize("confined", [as_rank, lambda probe: without_rights(lambda: as_rank(probe))])
def test_proc_of_a_rank_has_the_first_process_alone_and_what_it_says_of_itself(confined: Callable[..., Any]) -> None:
    def probe() -> list[Any]:
        process = psutil.Process()
        held = bytearray(os.urandom(1 << 24))
        seen = [process.name(), process.memory_info().rss > len(held), process.cpu_times().user >= 0]
        child = os.fork()
        if child == 0:
            os._exit(os.listdir("/proc").count(str(os.getpid())))
        seen += [os.waitpid(child, 0)[1], sorted(os.listdir("/proc/self")), Path("/proc/cpuinfo").exists()]
        return [*seen, sorted(each for each in os.listdir("/proc") if each.isdigit())]

    own = ["cmdline", "comm", "stat", "statm", "status"]
    assert confined(probe) == [Path("/proc/self/comm").read_text().strip(), True, True, 0, own, True, ["1"]]
    assert confined(lambda: Path("/proc/new").touch()) == "OSError"


@BOTH
def test_a_program_finds_its_libraries_beside_itself(confined: Callable[..., Any], tmp_path: Path) -> None:
    """A conda Python has $ORIGIN in its RUNPATH, which the loader reads from /proc/self/exe."""
    (tmp_path / "answer.c").write_text("int answer(void) { return 42; }")
    (tmp_path / "main.c").write_text("int answer(void); int main(void) { return answer(); }")
    for made in (["-shared", "-o", "libanswer.so", "answer.c"], ["main.c", "-L.", "-lanswer", "-Wl,-rpath,$ORIGIN"]):
        subprocess.run(["gcc", *made], cwd=tmp_path, check=True)
    program, library = (tmp_path / "a.out").read_bytes(), (tmp_path / "libanswer.so").read_bytes()

    def probe() -> list[Any]:
        Path("libanswer.so").write_bytes(library)
        Path("a.out").write_bytes(program)
        os.chmod("a.out", 0o755)
        return [subprocess.run(["./a.out"], check=False).returncode, len(os.listdir("/proc/self/task"))]

    assert confined(probe) == [42, 1]


def test_a_child_is_not_told_the_first_processes_size_as_its_own() -> None:
    def probe() -> list[str]:
        read, write = os.pipe()
        if os.fork() == 0:
            os.write(write, str(resident_bytes()).encode())
            os._exit(0)
        os.wait()
        return [str(type(resident_bytes())), os.read(read, 100).decode()]

    assert as_rank(probe) == ["<class 'int'>", "None"]


@BOTH
def test_a_rank_makes_no_file_with_a_number_of_the_machine(confined: Callable[..., Any]) -> None:
    families = (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX)
    makers: list[Callable[[], Any]] = [os.pipe, socket.socketpair, lambda: os.memfd_create("x")]
    makers += [lambda family=family: socket.socket(family) for family in families]  # type: ignore[misc]

    def probe() -> list[Any]:
        told = []
        for _ in range(2):
            for make in makers:
                try:
                    make()
                    told.append("made")
                except PermissionError:
                    told.append("refused")
            syscalls.install_apart()
        return told

    assert confined(probe) == ["made"] * len(makers) + ["refused"] * len(makers)


OUTLIVING = """
import socket, sys, time
from mlsys_grading.fork_server.client import ForkServer
from mlsys_grading.fork_server.request import ForkRequest
server = ForkServer(["tests.grading.fork_server_work"])
ours, theirs = socket.socketpair()
forked = server.fork(ForkRequest("tests.grading.fork_server_work:outlive", {"way": sys.argv[1]}), [theirs])
assert ours.recv(5) == b"ready"
print(forked.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("way", ["another signal", "a program by a thread"])
def test_no_submission_outlives_a_killed_grader(way: str) -> None:
    grader = subprocess.Popen([sys.executable, "-c", OUTLIVING, way], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert grader.stdout
    with grader.stdout as said:
        pid = int(said.readline())
    while way == "a program by a thread" and Path(f"/proc/{pid}/comm").read_text() != "sleep\n":
        time.sleep(0.02)
    handle = os.pidfd_open(pid)
    os.kill(_parent(pid), signal.SIGSTOP)  # the keeper would otherwise end it, if it sees the grader's end in time
    grader.kill()
    grader.wait()
    try:
        assert _has_ended(handle)
    finally:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(handle, signal.SIGKILL)
        os.close(handle)


def test_a_guard_ends_with_its_server() -> None:
    with ForkServer([]) as server:
        server.fork(ForkRequest("os:_exit", {}, Sandbox())).wait()
        guards = [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _parent(pid) == server.pid]
        assert len(guards) == 1
        handle = os.pidfd_open(guards[0])
    assert _has_ended(handle)
    os.close(handle)


def _has_ended(handle: int) -> bool:
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    return bool(poll.poll(60_000))


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0
