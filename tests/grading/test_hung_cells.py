"""A cell that hangs, sleeps, crashes or exits costs its own marks, also where its submission is run again elsewhere.

The source has a test of ranks, each of which is a process of its own, and one of peak memory, which makes another.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from mlsys_grading.examine.grader_link import GraderLink
from mlsys_grading.examine.pairs import WaitingPair
from mlsys_grading.examine.plan import make_plan
from mlsys_grading.examine.run import Examined, examine_submission
from mlsys_grading.fork_server.client import Forked, ForkServer
from mlsys_grading.fork_server.request import ForkRequest
from mlsys_grading.grade.modules import modules_of
from mlsys_grading.sandbox.confine import Sandbox, refusal
from mlsys_grading.time_limits import TimeLimits
from tests.grading.corpus.attacks_counters import SOURCE

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="a sandbox takes Linux's namespaces"),
    pytest.mark.xdist_group("sandbox"),
]
TIME_LIMITS = TimeLimits(60, 5, 600)
_CROWDED = 4  # processes that wait for each processor
BY_NAME = {cell["metadata"]["nbgrader"]["grade_id"]: cell["source"] for cell in SOURCE}
DEAF = """
import time
while True:
    try: time.sleep(1)
    except BaseException: pass
"""
ENDS = {
    "loops": "while True: pass",
    "sleeps": "import time; time.sleep(600)",
    "is deaf to interrupts": DEAF,
    "exits": "import os; os._exit(3)",
    "crashes": "import ctypes; ctypes.string_at(0)",
}
ALONE = """
import os
try:
    for end in os.pipe(): os.close(end)
except PermissionError:  # a process whose memory is measured
    {end}
"""


@pytest.fixture(scope="module")
def server(fork_server: Callable[[Sequence[str]], ForkServer]) -> Iterator[ForkServer]:
    if reason := refusal():
        pytest.skip(f"this machine allows no sandbox: {reason}")
    with fork_server(modules_of(SOURCE)) as made:
        yield made


@pytest.fixture(scope="module")
def contract(server: ForkServer) -> dict[str, list[str]]:
    return dict(examine_submission(server, make_plan(SOURCE, SOURCE), None, TIME_LIMITS, Sandbox()).contract)


@pytest.fixture
def jobs(server: ForkServer, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Return the jobs of all student's processes that the server starts from now on."""
    begun: list[dict[str, Any]] = []
    honest = ForkServer.begin

    def begin(self: ForkServer, request: ForkRequest, sockets: Any = ()) -> Forked:
        if request.function.endswith("student:serve"):
            begun.append(request.job | {"user": request.sandbox.user if request.sandbox else 0})
        return honest(self, request, sockets)

    waited = WaitingPair.start

    def start(self: WaitingPair, of_student: dict[str, Any], of_examiner: dict[str, Any]) -> None:
        begun.append(of_student | {"user": self.sandbox.user if self.sandbox else 0})
        waited(self, of_student, of_examiner)

    monkeypatch.setattr(ForkServer, "begin", begin)
    monkeypatch.setattr(WaitingPair, "start", start)
    return begun


def examine(server: ForkServer, contract: dict[str, list[str]], own: str = "", **answers: str) -> Examined:
    handed_in = [{"cell_type": "code", "metadata": {}, "source": own}]
    for cell in SOURCE:
        name = cell["metadata"]["nbgrader"]["grade_id"]
        handed_in.append({**cell, "source": answers.get(name, cell["source"])})
    examined = examine_submission(server, make_plan(SOURCE, handed_in), contract, TIME_LIMITS, Sandbox())
    if examined.trouble.startswith("the machine is too busy") and os.getloadavg()[0] > _CROWDED * (os.cpu_count() or 1):
        pytest.skip(f"a verdict takes an eighth of a processor: {examined.trouble}")
    return examined


def whole_runs(jobs: list[dict[str, Any]], name: str) -> int:
    """Count the processes that were to run a cell as it is."""
    count = 0
    for job in jobs:
        sources = {cell: source for _, cell, source in job["cells"]}
        is_whole = job["whole"] is None or name in job["whole"]
        count += bool(sources.get(name)) and is_whole and name not in job["defined"]
    return count


@pytest.mark.parametrize("end", ENDS)
def test_an_own_cell_costs_no_answer_its_marks(
    server: ForkServer, contract: dict[str, list[str]], jobs: list[dict[str, Any]], end: str
) -> None:
    needed = BY_NAME["gram"].replace("return ", "return 1 * TABLE[0] * ")  # takes a replay of the own cells
    examined = examine(server, contract, "TABLE = sorted([1])\n" + ENDS[end], gram=needed)
    assert (examined.trouble, examined.points) == ("", 3.0), [mark.error for mark in examined.marks]
    assert set(examined.failed_cells) >= {"cell 0"}
    assert whole_runs(jobs, "cell 0") == 1


def test_each_rank_is_another_user_and_apart(
    server: ForkServer, contract: dict[str, list[str]], jobs: list[dict[str, Any]]
) -> None:
    """The kernel has counts for each user (pipes, processes), by which ranks of one user could tell each other bits."""
    assert examine(server, contract).points == 5.0
    apart = [job["user"] for job in jobs if job["apart"]]
    assert len(apart) >= 3
    assert len(set(apart)) == len(apart)
    assert {job["user"] for job in jobs if not job["apart"]}.isdisjoint(apart)


def test_the_start_of_another_process_takes_none_of_a_tests_time() -> None:
    """On a busy machine the fork server waits for a processor, which no record of the student's processes shows."""
    ours, theirs = socket.socketpair()
    left: list[float] = []  # on the clock that ends the cell, while the process starts

    def answer() -> None:
        with theirs, theirs.makefile("r") as lines:
            for line in lines:
                if "another" not in json.loads(line):
                    theirs.sendall(struct.pack("<4d", 0, 0, 0, 0))
                    continue
                left.append(signal.getitimer(signal.ITIMER_REAL)[0])
                socket.send_fds(theirs, [bytes(8)], [theirs.fileno()])

    grader = threading.Thread(target=answer)
    grader.start()
    link = GraderLink(ours)
    with ours, link.deadline(600):
        started, *_ = link.start_another(whole=True, alone=False)
        left.append(signal.getitimer(signal.ITIMER_REAL)[0])
    started.close()
    grader.join()
    assert left[0] == 0
    assert left[1] > 0


@pytest.mark.parametrize("end", ENDS)
def test_an_answer_that_does_not_end_loses_no_other_answers_marks(
    server: ForkServer, contract: dict[str, list[str]], jobs: list[dict[str, Any]], end: str
) -> None:
    examined = examine(server, contract, total=BY_NAME["total"] + "\n" + ENDS[end])
    kept = end in ("loops", "sleeps")  # what it had bound before the interrupt
    assert (examined.trouble, examined.points) == ("", 5.0 if kept else 2.0), [mark.error for mark in examined.marks]
    assert whole_runs(jobs, "total") == 1


@pytest.mark.parametrize("end", ["while True: pass", "os._exit(0)"])
def test_a_cell_that_ends_only_a_measured_process_is_left_out_there(
    server: ForkServer, contract: dict[str, list[str]], jobs: list[dict[str, Any]], end: str
) -> None:
    examined = examine(server, contract, gram=BY_NAME["gram"] + ALONE.format(end=end))
    assert (examined.trouble, examined.points) == ("", 5.0), [mark.error for mark in examined.marks]
    assert whole_runs(jobs, "gram") == 5  # the first process, three ranks, and the one that was measured


def test_a_definition_that_does_not_end_is_left_out_altogether(
    server: ForkServer, contract: dict[str, list[str]], jobs: list[dict[str, Any]]
) -> None:
    endless = BY_NAME["total"] + "\ndef forever():\n    while True: pass\nclass Endless:\n    forever()\n"
    examined = examine(server, contract, total=endless)
    assert (examined.trouble, examined.points) == ("", 2.0), [mark.error for mark in examined.marks]
    assert whole_runs(jobs, "total") == 1


def test_progress_is_reported_once_a_cell_and_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair()
    link = GraderLink(ours)
    for now, cell in [(5.0, "a"), (5.5, "a"), (5.6, "b"), (6.5, "b"), (6.7, "b"), (7.0, "b"), (7.1, "a")]:
        monkeypatch.setattr("mlsys_grading.examine.grader_link.time.monotonic", lambda now=now: now)
        link.begun = cell
        link.report_progress()
    ours.close()
    with theirs, theirs.makefile() as lines:
        assert [json.loads(line)["begun"] for line in lines] == ["a", "b", "b", "a"]
