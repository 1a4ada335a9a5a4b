"""Tests that a pair of processes made ahead serves one submission, and is replaced where it is of no use."""

from __future__ import annotations

import fcntl
import os
import resource
import select
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from mlsys_grading.examine.pairs import Pairs
from mlsys_grading.examine.plan import SubmissionPlan, make_plan
from mlsys_grading.examine.run import Examined, examine_submission
from mlsys_grading.fork_server.client import Forked, ForkServer
from mlsys_grading.fork_server.request import ForkRequest
from mlsys_grading.fork_server.server import _Oversight
from mlsys_grading.grade import work
from mlsys_grading.grade.bounds import Bounds
from mlsys_grading.sandbox.confine import Sandbox, refusal
from mlsys_grading.sandbox.limits import SandboxLimits
from mlsys_grading.time_limits import TimeLimits
from tests.grading.gradebook_helpers import answered, graded, notebook, solution

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="a sandbox takes Linux's namespaces"),
    pytest.mark.xdist_group("sandbox"),
]
SOURCE = notebook(
    solution("leave", "return 0"), graded("leave_test", "assert leave() == 0", 3), solution("left", "return 1")
)
LEAVES = """
import sys, tempfile, torch
def leave():
    seen = hasattr(torch, "left_behind")
    torch.left_behind = sys.left_behind = True
    return int(seen)
"""
FIRST_CELL = """
shell, names = get_ipython(), [name for name in globals() if not name.startswith("_")]
seen = [shell.execution_count, len(In), len(Out), list(shell.history_manager.input_hist_raw[:-1]), sorted(names)]
import torch
own, seeded = torch.initial_seed(), torch.Generator()  # torch draws 64 bits when it is imported
seen.append(own > 10**6 and torch.equal(torch.get_rng_state(), seeded.manual_seed(own).get_state()))
def leave():
    return seen
"""
EMPTY = [2, 2, 0, [""], ["In", "Out", "exit", "get_ipython", "open", "quit"], True]  # in a kernel's first cell
TIME_LIMITS = TimeLimits(10, 20, 100)
TERMS = Sandbox(user=300_000), TIME_LIMITS.wall_seconds


@pytest.fixture(scope="module")
def server(fork_server: Callable[[Sequence[str]], ForkServer]) -> Iterator[ForkServer]:
    if reason := refusal():
        pytest.skip(f"this machine allows no sandbox: {reason}")
    with fork_server([]) as made:
        yield made


@pytest.fixture
def pairs(server: ForkServer) -> Iterator[Pairs]:
    made = Pairs(server, ahead=True)
    yield made
    made.close()


def examine(server: ForkServer, pairs: Pairs) -> Examined:
    plan = make_plan(SOURCE["cells"], answered({"leave": LEAVES}, SOURCE)["cells"])
    return examine_submission(server, plan, {}, TIME_LIMITS, TERMS[0], pairs)


def test_a_process_that_waited_runs_its_first_cell_in_an_empty_notebook(server: ForkServer, pairs: Pairs) -> None:
    pairs.prepare(*TERMS)
    source = notebook(solution("leave", "return 0"), graded("leave_test", f"assert leave() == {EMPTY}, leave()", 3))
    plan = make_plan(source["cells"], answered({"leave": FIRST_CELL}, source)["cells"])
    (mark,) = examine_submission(server, plan, {}, TIME_LIMITS, TERMS[0], pairs).marks
    assert mark.points == 3, mark.error


def waiting(pairs: Pairs) -> list[int]:
    """Return the pids of the pair that waits."""
    assert pairs._waiting is not None
    return [pairs._waiting.student.pid, pairs._waiting.examiner.pid]


def test_a_pair_made_ahead_examines_one_submission(server: ForkServer, pairs: Pairs) -> None:
    seen: list[list[int]] = []
    for _ in range(3):
        assert examine(server, pairs).points == 3
        seen.append(waiting(pairs))
    assert len({pid for each in seen for pid in each}) == 6
    pairs.prepare(*TERMS)  # nothing new, since one waits
    assert waiting(pairs) == seen[-1]
    assert not any(map(psutil.pid_exists, seen[0]))  # it examined the second, and ended before the third's was made


@pytest.mark.parametrize("which", [0, 1], ids=["student", "examiner"])
def test_a_waiting_pair_of_which_one_has_died_is_replaced(server: ForkServer, pairs: Pairs, which: int) -> None:
    pairs.prepare(*TERMS)
    dead = waiting(pairs)
    handle = os.pidfd_open(dead[which])
    os.kill(dead[which], signal.SIGKILL)
    select.select([handle], [], [])
    os.close(handle)
    examined = examine(server, pairs)
    assert (examined.points, examined.trouble, examined.restarts) == (3, "", 0)
    assert not set(waiting(pairs)) & set(dead)


@pytest.mark.parametrize("terms", [(replace(TERMS[0], cpus=(0,)), TERMS[1]), (TERMS[0], 7.0)], ids=["sandbox", "time"])
def test_a_pair_made_for_other_terms_is_not_used(pairs: Pairs, terms: tuple[Sandbox, float]) -> None:
    pairs.prepare(*TERMS)
    pids = waiting(pairs)
    pair = pairs.take(*terms)
    assert not {pair.student.pid, pair.examiner.pid} & set(pids)
    assert not any(map(psutil.pid_exists, pids))
    pair.end()


def test_sandboxes_that_are_there_together_have_users_of_their_own(pairs: Pairs) -> None:
    at_work = pairs.take(*TERMS)
    pairs.prepare(*TERMS)
    pids = [at_work.student.pid, at_work.examiner.pid, *waiting(pairs)]
    assert len({psutil.Process(pid).uids().real for pid in pids}) == (4 if os.geteuid() == 0 else 1)
    at_work.end()


def test_a_process_that_ends_later_is_gone_before_its_user_is_used_again(pairs: Pairs) -> None:
    at_work = pairs.take(*TERMS)
    pids = [at_work.student.pid, at_work.examiner.pid]
    pairs.end_later(at_work.student)
    pairs.end_later(at_work.examiner)
    pairs.prepare(*TERMS)
    assert not any(map(psutil.pid_exists, pids))
    at_work.end()


def test_a_process_has_ended_or_not_also_where_many_files_are_open() -> None:
    """Each of hundreds of graders at a time has some ten descriptors; ``select`` takes those below 1024."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(limits[0], 2048), limits[1]))
    mine, theirs = socket.socketpair()
    high = socket.socket(fileno=fcntl.fcntl(mine.fileno(), fcntl.F_DUPFD_CLOEXEC, 1024))
    with mine, theirs, high:
        forked = Forked(high)
        theirs.sendall(b"pid 7\n")
        assert not forked.has_ended()
        theirs.sendall(b"ended 0\n")
        assert forked.has_ended()
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_no_pair_waits_or_ends_beside_a_timed_cell(
    server: ForkServer, pairs: Pairs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The timed submission's own pair has the same users as one of those."""
    at_work = pairs.take(*TERMS)
    pairs.prepare(*TERMS)
    pids = [at_work.student.pid, at_work.examiner.pid, *waiting(pairs)]
    pairs.end_later(at_work.student)
    pairs.end_later(at_work.examiner)
    worker = work.GradingWorker()
    worker._mine.pairs = pairs
    monkeypatch.setattr(worker, "_server", lambda modules: server)
    beside: list[bool] = []
    monkeypatch.setattr(work, "examine_submission", lambda *_: beside.extend(map(psutil.pid_exists, pids)))
    job: Any = SimpleNamespace(bounds=Bounds(timing=True), modules=(), contract=None)
    worker._examine(job, SubmissionPlan((), ()))
    assert beside == [False] * 4


def test_pairs_that_do_not_work_ahead_make_none(server: ForkServer) -> None:
    pairs = Pairs(server)
    assert examine(server, pairs).points == 3
    assert pairs._waiting is None
    pairs.close()


def test_a_process_that_waited_has_its_whole_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock is the test's own: 70 s of waiting and 50 s of work are no more than 60 s, 70 s of work are."""
    mine, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        signal.pause()
    now = iter([0.0, 70.0, 70.0, 120.0, 140.0])
    monkeypatch.setattr("mlsys_grading.fork_server.server.time.monotonic", lambda: next(now))
    monkeypatch.setattr("mlsys_grading.fork_server.server._LOOK_SECONDS", 0.001)
    mine.sendall(b".")
    _Oversight(theirs, ForkRequest("os:_exit", {}, None, 60, waits=True), frozenset()).oversee(pid, None)
    theirs.close()
    assert mine.makefile().read().splitlines() == [f"pid {pid}", "ended -9 wall"]
    assert next(now, None) is None
    mine.close()


@pytest.mark.parametrize(("held_gib", "reads"), [(1.0, [0.0, 0.2]), (1.9, [0.0, 0.12, 0.25]), (2.1, [0.0, 0.1, 0.12])])
def test_memory_is_read_again_before_the_rest_can_be_filled(
    monkeypatch: pytest.MonkeyPatch, held_gib: float, reads: list[float]
) -> None:
    """Two processors fill 20 GB/s: of 4 GiB the last 3 in 0.161 s, the last 2.1 in 0.113 s."""
    seen: list[float] = []
    server = "mlsys_grading.fork_server.server"
    oversight = _Oversight(socket.socket(), ForkRequest("", {}, Sandbox(cpus=(0, 1))), frozenset())
    for now in (0.0, 0.1, 0.12, 0.2, 0.25)[: 3 if held_gib > 2 else 5]:

        def hold(pids: Sequence[int], now: float = now) -> int:
            seen.append(now)
            return int(held_gib * 2**30)

        monkeypatch.setattr(f"{server}.time.monotonic", lambda now=now: now)
        monkeypatch.setattr(f"{server}.watch.may_hold_bytes", hold)
        monkeypatch.setattr(f"{server}.watch.held_bytes", lambda pid: 0)
        assert oversight._excess(os.getpid(), SandboxLimits()) == ""
    assert seen == reads
