"""The fork server from outside: the state of its forks, the reasons for their end, and that nothing of them is left."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from mlsys_grading.fork_server.client import Ended, Forked, ForkServer, ForkServerError
from mlsys_grading.fork_server.request import ForkRequest
from mlsys_grading.fork_server.server import _Oversight, _serve as serve
from mlsys_grading.grade import work
from mlsys_grading.sandbox import confine, watch
from mlsys_grading.sandbox.confine import Sandbox, refusal
from mlsys_grading.sandbox.limits import SandboxLimits
from mlsys_grading.sandbox.watch import held_bytes, is_ending, tree
from tests.grading import fork_server_work

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="a sandbox takes Linux's namespaces"),
    pytest.mark.xdist_group("sandbox"),
]
WORK = "tests.grading.fork_server_work"


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    if reason := refusal():
        pytest.skip(f"this machine allows no sandbox: {reason}")
    with ForkServer(["numpy", "no_such_module", WORK]) as made:
        yield made


def ask(server: ForkServer, name: str, job: dict[str, Any] | None = None, **more: Any) -> tuple[Forked, socket.socket]:
    ours, theirs = socket.socketpair()
    return server.fork(ForkRequest(f"{WORK}:{name}", job or {}, **more), [theirs]), ours


def everything(link: socket.socket) -> bytes:
    link.settimeout(30)
    return b"".join(iter(lambda: link.recv(1 << 16), b""))


def test_a_fork_gets_its_job_and_its_sockets_and_is_confined(server: ForkServer) -> None:
    forked, link = ask(server, "report", {"say": "hello"})
    with forked:
        told = json.loads(everything(link))
        assert forked.wait() == Ended(0)
    assert told == {"said": "hello", "numpy": True, "user": 1000, "here": "/sandbox", "pid": 1}


def test_the_temporary_folder_is_the_sandboxs_whatever_the_server_has_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with ForkServer([WORK]) as server:
        forked, link = ask(server, "report_temporary_folder")
        with forked:
            assert everything(link) == b"/tmp"


def test_without_a_sandbox_it_is_an_ordinary_process(server: ForkServer) -> None:
    forked, link = ask(server, "report", {"say": "hello"}, sandbox=None)
    with forked:
        told = json.loads(everything(link))
    assert told["user"] == os.getuid()
    assert told["pid"] == forked.pid


def test_forks_do_not_share_state(server: ForkServer) -> None:
    assert not hasattr(fork_server_work, "left_behind")
    for _ in range(2):
        forked, link = ask(server, "leave_something")
        with forked:
            assert everything(link) == b"nothing was here"


@pytest.mark.parametrize("sandbox", [Sandbox(), None], ids=["confined", "unconfined"])
def test_closed_connection_ends_the_whole_tree(server: ForkServer, sandbox: Sandbox | None) -> None:
    forked, link = ask(server, "multiply", sandbox=sandbox)
    assert link.recv(5) == b"ready"
    pids = tree(forked.pid)
    assert len(pids) == 3
    forked.end()
    deadline = time.monotonic() + 240
    while any(map(psutil.pid_exists, pids)) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not any(map(psutil.pid_exists, pids))
    assert everything(link) == b""


def test_end_names_time_or_memory_as_the_reason(server: ForkServer) -> None:
    forked, _ = ask(server, "sleep", wall_seconds=0.2)
    with forked:
        assert forked.wait() == Ended(-signal.SIGKILL, "wall")
    small = Sandbox(limits=SandboxLimits(memory_bytes=300 << 20))
    for name in fork_server_work.HOARDS:  # RLIMIT_DATA limits none of these
        forked, _ = ask(server, name, sandbox=small)
        with forked:
            assert forked.wait() == Ended(-signal.SIGKILL, "memory"), name


def test_tree_with_too_many_processes_is_ended(server: ForkServer) -> None:
    few = Sandbox(limits=SandboxLimits(processes=40, children=16))
    forked, _ = ask(server, "breed", sandbox=few)
    with forked:
        assert forked.wait() == Ended(-signal.SIGKILL, "processes")


def test_memory_shared_with_the_server_does_not_count(server: ForkServer) -> None:
    forked, link = ask(server, "sleep")
    with forked:
        assert link.recv(5) == b"ready"
        assert held_bytes(forked.pid) < forked.peak_bytes() / 3


def test_the_peak_is_what_the_kernel_counted(server: ForkServer) -> None:
    forked, link = ask(server, "allocate", {"bytes": 64 << 20})
    with forked:
        assert link.recv(5) == b"ready"
        before = forked.peak_bytes(reset=True)
        link.send(b".")
        assert link.recv(4) == b"done"
        assert 64 << 20 <= forked.peak_bytes() - before < 72 << 20


def test_a_function_that_raises_is_exit_code_1_and_its_neighbours_do_not_notice(server: ForkServer) -> None:
    forked, _ = ask(server, "no_such_function")
    with forked:
        assert forked.wait() == Ended(1)
    forked, link = ask(server, "report", {"say": "still here"})
    with forked:
        assert json.loads(everything(link))["said"] == "still here"


def test_forks_and_files_end_with_the_server() -> None:
    with ForkServer([WORK]) as server:
        forked, link = ask(server, "multiply")
        assert link.recv(5) == b"ready"
        pids = [*tree(forked.pid), server.pid]
        folder = Path(server._path).parent
    deadline = time.monotonic() + 240
    while any(map(psutil.pid_exists, pids)) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not any(map(psutil.pid_exists, pids))
    assert not folder.exists()
    with pytest.raises(ForkServerError, match="gone"):
        ask(server, "report")


@pytest.mark.parametrize("said", [b"", b"\x00", b"\xff\x00\x00\x00half a request"])
def test_fork_of_an_ended_client_prints_no_error(said: bytes, capfd: pytest.CaptureFixture[str]) -> None:
    ours, theirs = socket.socketpair()
    ours.sendall(said)
    ours.close()
    _in_a_fork(lambda: serve(theirs, os.getppid()))
    assert capfd.readouterr().err == ""


def test_fork_of_a_killed_server_prints_no_error(capfd: pytest.CaptureFixture[str]) -> None:
    ours, theirs = socket.socketpair()
    _in_a_fork(lambda: serve(theirs, parent=1 << 22))
    assert capfd.readouterr().err == ""
    theirs.close()
    assert ours.recv(1) == b"", "who asked sees the connection end"


def test_killed_keeper_prints_no_error(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    ours, theirs = socket.socketpair()

    def wait_until_the_keeper_is_gone(*_: Any) -> None:
        ours.close()
        theirs.send(b"confining")
        theirs.recv(1)

    monkeypatch.setattr(confine, "_confine", wait_until_the_keeper_is_gone)
    keeper = confine.start(Sandbox(), lambda: None)
    theirs.close()
    assert ours.recv(9) == b"confining"
    os.kill(keeper, signal.SIGKILL)
    os.waitpid(keeper, 0)
    ours.send(b".")
    with suppress(ConnectionError):
        assert ours.recv(1) == b"", "the last process has ended"
    assert capfd.readouterr().err == ""


def _in_a_fork(work: Callable[[], Any]) -> None:
    pid = os.fork()
    if pid == 0:
        work()
        os._exit(1)
    os.waitpid(pid, 0)


def knows_numpy(server: ForkServer) -> bool:
    forked, link = ask(server, "report", {"say": ""})
    with forked:
        return bool(json.loads(everything(link))["numpy"])


def test_a_clone_has_what_its_original_imported_and_ends_with_it() -> None:
    with ForkServer(["numpy", WORK]) as original:
        clones = [original.clone() for _ in range(2)]
        assert len({original.pid, *(clone.pid for clone in clones)}) == 3
        assert all(map(knows_numpy, clones))
        clones[0].close()
        assert [clone.is_alive for clone in clones] == [False, True]
        assert original.is_alive
        assert knows_numpy(clones[1])
        with pytest.raises(ForkServerError, match="gone"):
            clones[0].clone()
        other = psutil.Process(clones[1].pid)
    assert not psutil.wait_procs([other], timeout=240)[1]
    clones[1].close()
    assert not clones[1].is_alive


def test_a_clone_imports_more_than_its_original() -> None:
    with ForkServer([WORK]) as original, original.clone(["no_such_module", "numpy"]) as clone, clone.clone() as again:
        assert [knows_numpy(server) for server in (original, clone, again)] == [False, True, True]


def test_the_labs_of_a_worker_share_one_servers_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[ForkServer] = []

    def start(modules: Sequence[str]) -> ForkServer:
        started.append(ForkServer(modules))
        return started[-1]

    monkeypatch.setattr(work, "ForkServer", start)
    monkeypatch.setattr(work, "ALWAYS", (WORK,))
    worker = work.GradingWorker()
    try:
        assert not knows_numpy(worker._server((WORK,)))
        assert knows_numpy(worker._server((WORK, "numpy")))
        assert len(started) == 1
        ending = [psutil.Process(server.pid) for server in (*worker._originals.values(), *worker._servers)]
        started[0].close()
        assert not psutil.wait_procs(ending, timeout=240)[1]
        assert knows_numpy(worker._server((WORK, "numpy")))
        assert len(started) == 2
    finally:
        worker.close()
    assert not any(server.is_alive for server in started)


def test_a_process_is_ending_from_its_end_until_it_is_waited_for() -> None:
    assert not is_ending(os.getpid())
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert is_ending(pid)
    os.waitpid(pid, 0)
    assert is_ending(pid)


@pytest.mark.parametrize("is_killed", [True, False])
def test_hanging_up_on_a_killed_process_does_not_make_it_abandoned(
    monkeypatch: pytest.MonkeyPatch, is_killed: bool
) -> None:
    """Sockets of a killed process close first: let it end only after the supervisor has seen its grader hang up."""
    mine, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        time.sleep(60)
        os._exit(0)
    looked = []

    def looks(pid: int) -> bool:
        looked.append(pid)
        os.kill(pid, signal.SIGKILL)
        return is_killed

    monkeypatch.setattr(watch, "is_ending", looks)
    oversight = _Oversight(theirs, ForkRequest("os:_exit", {}, wall_seconds=60), frozenset())
    mine.shutdown(socket.SHUT_WR)
    assert oversight.oversee(pid, None) == signal.SIGKILL
    assert looked == [pid]
    theirs.close()
    assert mine.makefile().read().splitlines() == [f"pid {pid}", f"ended -9{'' if is_killed else ' abandoned'}"]
