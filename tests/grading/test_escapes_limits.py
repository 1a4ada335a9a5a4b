"""Limits of a sandbox on processes, memory and files, each tried from within one."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from mlsys_grading.fork_server import server
from mlsys_grading.fork_server.request import ForkRequest
from mlsys_grading.sandbox.confine import Sandbox, start
from mlsys_grading.sandbox.limits import SandboxLimits
from mlsys_grading.sandbox.watch import held_bytes, may_hold_bytes
from tests.conftest import ROOT
from tests.grading import fork_server_work
from tests.grading.escape_helpers import BOTH, EMFILE, EPERM, as_nobody, call, numbers, without_rights
from tests.grading.test_sandbox import inside

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="a sandbox takes Linux's namespaces"),
    pytest.mark.xdist_group("sandbox"),
    pytest.mark.usefixtures("sandbox_allowed"),
]


IDLE = os.sched_param(0) if hasattr(os, "sched_param") else None


@BOTH
def test_limits_are_not_raised_again(confined: Callable[..., Any]) -> None:
    import resource

    def probe() -> list[str]:
        told = []
        for which in (resource.RLIMIT_NPROC, resource.RLIMIT_DATA, resource.RLIMIT_MEMLOCK, resource.RLIMIT_NOFILE):
            try:
                resource.setrlimit(which, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
                told.append("raised")
            except (ValueError, PermissionError, OSError) as error:
                told.append(type(error).__name__)
        return told

    assert confined(probe) == ["ValueError"] * 4
    # Neither first nor last: a process that steps back, and waits, would seem to be kept waiting by others.
    for change in (lambda: os.nice(-5), lambda: os.nice(9), lambda: os.sched_setscheduler(0, os.SCHED_IDLE, IDLE)):
        assert confined(lambda change=change: [change(), os.nice(0), os.sched_getscheduler(0)][1:]) == [  # type: ignore[misc]
            os.nice(0) + 5,
            os.SCHED_OTHER,
        ]
    known = numbers(platform.machine())
    # Past its processor time the kernel would kill it, as from outside.
    assert confined(lambda: resource.setrlimit(resource.RLIMIT_CPU, (1, 1))) == "ValueError"
    assert confined(lambda: resource.prlimit(1, resource.RLIMIT_CPU, (1, 1))) == "PermissionError"
    assert confined(lambda: list(resource.getrlimit(resource.RLIMIT_CPU))) == list(
        resource.getrlimit(resource.RLIMIT_CPU)
    )
    assert confined(lambda: call(known["setrlimit"], resource.RLIMIT_CPU, 0)) == EPERM
    assert confined(lambda: resource.setrlimit(resource.RLIMIT_CORE, (0, 0))) is None
    name = ctypes.create_string_buffer(b"queue")
    assert confined(lambda: call(known["mq_open"], ctypes.addressof(name), os.O_CREAT | os.O_RDWR, 0o600, 0)) == EMFILE


@pytest.mark.parametrize("is_root", [True, False], ids=["root", "nobody"])
def test_fork_bomb_leaves_room_for_another_sandbox(is_root: bool) -> None:
    """Two sandboxes at a time, the first at its limit of processes."""
    if is_root and os.geteuid():
        pytest.skip("without root's rights there is one user for all sandboxes")
    storm, neighbour = _beside_a_storm() if is_root else without_rights(_beside_a_storm)
    assert 1 <= storm < 40  # its children fork too
    assert neighbour == 20


def _beside_a_storm() -> tuple[int, Any]:
    read, write = os.pipe()

    def storm() -> None:
        started = 0
        with contextlib.suppress(OSError):
            while os.fork():
                started += 1
            time.sleep(600)
        os.write(write, f"{started}\n".encode())
        time.sleep(600)

    def few() -> int:
        for number in range(20):
            if os.fork() == 0:
                time.sleep(600)
                os._exit(number)
        return 20

    first = Sandbox(limits=SandboxLimits(processes=40), user=200_000)
    keeper = start(first, storm, keep=(write,))
    os.close(write)
    select.select([read], [], [], 600)
    count = int(os.read(read, 16).split()[0])
    beside = inside(few, Sandbox(limits=SandboxLimits(processes=40), user=200_002))
    os.kill(keeper, signal.SIGKILL)
    os.waitpid(keeper, 0)
    os.close(read)
    return count, beside


def test_processor_affinity_cannot_be_changed() -> None:
    first, *others = sorted(os.sched_getaffinity(0))

    def widen() -> list[Any]:
        here = sorted(os.sched_getaffinity(0))
        try:
            os.sched_setaffinity(0, {first, *others})
        except PermissionError:
            return [here, sorted(os.sched_getaffinity(0))]
        return [here, "widened"]

    assert inside(widen, Sandbox(cpus=(first,))) == [[first], [first]]
    assert inside(lambda: sorted(os.sched_getaffinity(0))) == [first, *others]
    assert inside(lambda: os.sched_setaffinity(0, {first})) is None  # who was given all may choose among them


def test_sparse_files_are_allowed_and_stored_bytes_are_bounded() -> None:
    """CUDA's simulated heap is such a file, under the limits that there are by default."""

    def heap() -> list[Any]:
        import numpy as np

        import mlsys_labkit as lk

        large = lk.cuda.zeros(400 << 20, np.float32)  # 1.6 GB, of which a page is touched
        with open("/tmp/sparse", "wb") as file:
            file.truncate(8 << 30)
        return [large.nbytes, os.stat("/tmp/sparse").st_size]

    assert inside(heap) == [1600 << 20, 8 << 30]

    def fill(folder: str) -> Any:
        with open(f"{folder}/file", "wb") as file:
            os.posix_fallocate(file.fileno(), 0, 1 << 30)

    for folder in ("/tmp", "/dev/shm", "."):
        assert inside(lambda folder=folder: fill(folder)) == "OSError"  # type: ignore[misc]


def ended_without_rights(hoard: str) -> str:
    """Return the end that a watcher without root's rights reports for a tree with too much memory."""
    limits = SandboxLimits(memory_bytes=300 << 20)

    def told() -> str:
        ours, theirs = socket.socketpair()
        near, far = socket.socketpair()
        request = ForkRequest(f"tests.grading.fork_server_work:{hoard}", {}, Sandbox(limits=limits), wall_seconds=60)
        oversight = server._Oversight(theirs, request, frozenset({os.fstat(far.fileno()).st_ino}))
        assert request.sandbox
        work = getattr(fork_server_work, hoard)
        keeper = start(request.sandbox, lambda: work({}, [far]), (far.fileno(),), oversight.oversee)
        theirs.close()
        os.waitpid(keeper, 0)
        near.close()
        return ours.makefile().read()

    return str(without_rights(told)).split("\n")[1]


@pytest.mark.parametrize("hoard", fork_server_work.HOARDS)
def test_memory_is_bounded_without_roots_rights_too(hoard: str) -> None:
    """The watcher may read only the processes of its own user.

    From a small process: what this one holds counts against the limit of what is forked from it.
    """
    code = f"from tests.grading.test_escapes_limits import ended_without_rights as ended; print(ended({hoard!r}))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout == f"ended {-signal.SIGKILL} memory\n", done.stderr


def test_process_cannot_hide_from_the_watcher() -> None:
    undumpable = numbers(platform.machine())["prctl"], 4, 0
    assert as_nobody(lambda: call(*undumpable)) == EPERM
    if os.geteuid() == 0:  # a process of root's stands for one that hides
        pid = os.getpid()
        assert without_rights(lambda: [held_bytes(pid), may_hold_bytes([pid])]) > [1 << 62, 1 << 62]
    assert held_bytes(os.getpid()) < 1 << 40
