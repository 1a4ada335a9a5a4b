"""Tests that a submission loses no marks to the machine: killed from outside, or given no processor time."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from mlsys_grading.boundary.allowance import MOST, Allowance
from mlsys_grading.boundary.errors import StarvedError
from mlsys_grading.examine import crowding, run
from mlsys_grading.examine.grader_link import GraderLink
from mlsys_grading.examine.plan import make_plan
from mlsys_grading.examine.run import Examined, examine_submission
from mlsys_grading.fork_server.client import ForkServer
from mlsys_grading.grade.modules import _LATE
from mlsys_grading.sandbox.confine import Sandbox, refusal
from mlsys_grading.time_limits import TimeLimits
from tests.grading.gradebook_helpers import answered, graded, notebook, solution

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="a sandbox takes Linux's namespaces"),
    pytest.mark.xdist_group("sandbox"),
]
SOURCE = notebook(
    solution("double", "return 2 * x"),
    graded("double_test", "assert double(2) == 4", 3),
    solution("halve", "return x / 2"),
    graded("halve_test", "assert halve(2) == 1", 4),
)
RIGHT = {"double": "def double(x): return 2 * x", "halve": "def halve(x): return x / 2"}
NAMED = "import ctypes, os, signal, time\nctypes.CDLL(None).prctl(15, b'{name}')\n"  # PR_SET_NAME
TIME_LIMITS = TimeLimits(10, 20, 100)


@pytest.fixture(scope="module")
def server(fork_server: Callable[[Sequence[str]], ForkServer]) -> Iterator[ForkServer]:
    if reason := refusal():
        pytest.skip(f"this machine allows no sandbox: {reason}")
    with fork_server([]) as made:
        yield made


def examine(
    server: ForkServer, answers: dict[str, str], time_limits: TimeLimits = TIME_LIMITS, sandbox: Sandbox | None = None
) -> Examined:
    plan = make_plan(SOURCE["cells"], answered(RIGHT | answers, SOURCE)["cells"])
    return examine_submission(server, plan, {}, time_limits, sandbox or Sandbox())


def passed(examined: Examined) -> list[str]:
    return [verdict.name for verdict in examined.marks if verdict.passed]


class Killer(threading.Thread):
    """A stand-in for a system short of memory: it kills each process with a given name below a server."""

    def __init__(self, server: ForkServer, name: str) -> None:
        super().__init__(daemon=True)
        self.server, self.victim, self.over = psutil.Process(server.pid), name, False
        self.killed: set[int] = set()  # a killed process keeps its name until it is reaped

    def run(self) -> None:
        while not self.over:
            for process in self.server.children(recursive=True):
                try:
                    if process.name() == self.victim:
                        process.kill()
                        self.killed.add(process.pid)
                except psutil.Error:
                    continue
            time.sleep(0.02)

    def __enter__(self) -> Killer:
        self.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self.over = True
        self.join()


@pytest.mark.parametrize(
    "answers",
    [
        {"double": NAMED.format(name="a-cell") + "time.sleep(60)"},
        {"double": f"def double(x):\n    exec({NAMED.format(name='a-call') + 'time.sleep(60)'!r})"},
        {"halve": f"def halve(x):\n    exec({NAMED.format(name='the-last') + 'time.sleep(60)'!r})"},
    ],
    ids=["a-cell", "a-call", "the-last"],
)
def test_process_killed_from_outside_loses_no_marks(
    server: ForkServer, answers: dict[str, str], request: pytest.FixtureRequest
) -> None:
    with Killer(server, request.node.callspec.id) as killer:
        examined = examine(server, answers)
    assert len(killer.killed) == 1  # no second try on this machine, where the cause still exists
    assert "killed by something else" in examined.trouble


def test_rank_killed_from_outside_loses_no_marks(fork_server: Callable[[Sequence[str]], ForkServer]) -> None:
    """The student's first process, of which no rank is a child, answers to the end."""
    ranks = "import mlsys_labkit as lk\nlk.checks.run_ranks(total, 1, 2)"
    source = notebook(solution("total", "return 2 * x"), graded("total_test", ranks, 3))
    body = NAMED.format(name="a-rank") + "time.sleep(60)"
    plan = make_plan(source["cells"], answered({"total": f"def total(x):\n    exec({body!r})"}, source)["cells"])
    with (
        fork_server(["mlsys_labkit.ranks", *_LATE["mlsys_labkit.ranks"]]) as server,
        Killer(server, "a-rank") as killer,
    ):
        examined = examine_submission(server, plan, {}, TIME_LIMITS, Sandbox())
    assert len(killer.killed) == 1
    assert "killed by something else" in examined.trouble


@pytest.mark.parametrize(
    "end",
    [
        "os._exit(0)",
        "os._exit(137)",
        "os.abort()",
        "os.kill(os.getpid(), signal.SIGKILL); os._exit(1)",  # which the first process of a namespace survives
        "import resource; resource.setrlimit(resource.RLIMIT_CPU, (1, 1))\nwhile True: pass",
        "timer = ctypes.CDLL(None).alarm(1)\nsignal.signal(signal.SIGALRM, signal.SIG_DFL)\nos._exit(3)",
    ],
)
def test_process_that_ends_itself_loses_marks(server: ForkServer, end: str) -> None:
    body = "import ctypes, os, signal\n" + end
    examined = examine(server, {"double": f"def double(x):\n    exec({body!r})"}, TimeLimits(3, 9, 100))
    assert (examined.trouble, passed(examined)) == ("", ["halve_test"])


def test_process_with_too_much_memory_loses_marks(server: ForkServer) -> None:
    from mlsys_grading.sandbox.limits import SandboxLimits

    hoard = "def double(x):\n    held = [bytearray(100 << 20) for _ in range(3)]\n    import time; time.sleep(300)"
    body = hoard.replace("held =", "import mmap; held =").replace(
        "bytearray(100 << 20)", "_fill(mmap.mmap(-1, 200 << 20))"
    )
    body = "def _fill(m):\n    m.write(b'1' * len(m))\n    return m\n" + body
    sandbox = Sandbox(limits=SandboxLimits(memory_bytes=400 << 20))
    examined = examine(server, {"double": body}, TimeLimits(100, 200, 600), sandbox)
    assert (examined.trouble, passed(examined)) == ("", ["halve_test"])


BUSY = "    import time\n    end = time.process_time() + {seconds}\n    while time.process_time() < end: pass\n"
SLEEPS = "    import time\n    time.sleep(60)\n"


@pytest.fixture
def crowded(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    """Yield a sandbox on a processor that five other processes (or as many as a test asks for) keep busy."""
    where = max(os.sched_getaffinity(0))
    code = f"import os\nos.sched_setaffinity(0, [{where}])\nprint(flush=True)\nwhile True: pass"
    others = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True)
        for _ in range(getattr(request, "param", 5))
    ]
    try:
        for each in others:
            assert each.stdout
            each.stdout.readline()
        yield Sandbox(cpus=(where,))
    finally:
        for each in others:
            each.kill()
            each.communicate()


def slow_double(seconds: float, body: str = BUSY) -> dict[str, str]:
    return {"double": "def double(x):\n" + body.format(seconds=seconds) + "    return 2 * x"}


def test_waiting_for_a_processor_takes_nothing_from_a_calls_time(server: ForkServer, crowded: Sandbox) -> None:
    examined = examine(server, slow_double(0.25), TimeLimits(1.2, 20, 100), crowded)
    assert (examined.trouble, passed(examined)) == ("", ["double_test", "halve_test"])
    assert examined.restarts == 0


def test_waiting_for_a_processor_takes_nothing_from_a_cells_time(server: ForkServer, crowded: Sandbox) -> None:
    examined = examine(server, slow_double(0.25), TimeLimits(20, 1.2, 100), crowded)
    assert (examined.trouble, passed(examined)) == ("", ["double_test", "halve_test"])


def test_the_grader_tells_an_examiner_how_long_it_waited_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """No file in a sandbox says so. The time of a student's call, which it waits for, is not lengthened by that."""
    monkeypatch.setattr(run, "waited_seconds", {7: 5.0}.get)
    nothing: Any = None
    examination = run._Examination(nothing, nothing, None, TimeLimits(), None, nothing)
    examination._examiner, examination._sandbox = SimpleNamespace(pid=7), None  # type: ignore[assignment]
    mine, theirs = socket.socketpair()
    mine.settimeout(60)
    link = GraderLink(mine)

    def answer() -> None:
        theirs.recv(100)
        examination._on_standing(None, theirs)

    with theirs, mine, examination._looking:
        for asked, waited in ((link._standing_of_both, 5.0), (link.standing, 0.0)):
            answering = threading.Thread(target=answer)
            answering.start()
            assert asked()[0] == waited
            answering.join()


def test_sleeping_uses_up_a_calls_time(server: ForkServer, crowded: Sandbox) -> None:
    examined = examine(server, slow_double(0, SLEEPS), TimeLimits(2, 20, 100), crowded)
    assert (examined.trouble, passed(examined)) == ("", ["halve_test"])


@pytest.mark.parametrize("crowded", [20], indirect=True)  # a new process may get twice its share for a moment
def test_starved_submission_gets_no_mark(server: ForkServer, crowded: Sandbox) -> None:
    examined = examine(server, slow_double(30), TimeLimits(0.5, 20, 100), crowded)
    assert "the machine is too busy" in examined.trouble
    assert "(--jobs)" in examined.trouble


def test_looping_ends_when_its_processor_time_is_over_also_where_it_crowds_itself(server: ForkServer) -> None:
    body = "    import os\n    for _ in range(6):\n        if os.fork() == 0: break\n    while True: pass\n"
    where = max(os.sched_getaffinity(0))
    limits, sandbox = TimeLimits(1, 20, 100), Sandbox(cpus=(where,))
    until = time.monotonic() + 300
    while (examined := examine(server, slow_double(0, body), limits, sandbox)).trouble and time.monotonic() < until:
        assert "the machine is too busy" in examined.trouble  # it is, if others leave this core less than a quarter
    assert (examined.trouble, passed(examined)) == ("", ["halve_test"])


# The kernel forgets what children used whose end their parent ignores; the parent waits meanwhile.
UNSEEN = {
    "children": """
    import os, signal, time
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        for _ in range(6):
            if os.fork() == 0:
                end = time.monotonic() + 0.05
                while time.monotonic() < end: pass
                os._exit(0)
        end = time.monotonic() + 0.05
        while time.monotonic() < end: os.sched_yield()
""",
    "grandchildren": """
    import os, signal, time
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for _ in range(4):
        if os.fork() == 0:
            while True:
                if os.fork() == 0:
                    end = time.monotonic() + 0.04
                    while time.monotonic() < end: pass
                    os._exit(0)
                time.sleep(0.01)
    while True: time.sleep(0.0)
""",
}


@pytest.mark.parametrize("who", UNSEEN)
def test_time_used_by_processes_that_nobody_waits_for_is_the_students(server: ForkServer, who: str) -> None:
    """As on a quiet machine: the grader is told that only the tree's own processes are runnable."""
    where = max(os.sched_getaffinity(0))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(crowding, "all_runnable", lambda: 0)
        examined = examine(server, slow_double(0, UNSEEN[who]), TimeLimits(1, 60, 100), Sandbox(cpus=(where,)))
    assert (examined.trouble, passed(examined)) == ("", ["halve_test"])


def test_a_submission_is_starved_only_by_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty others that are runnable on one processor, and none."""
    denied = []
    for others in (20, 0):
        monkeypatch.setattr(crowding, "all_runnable", lambda others=others: others + 2)
        monkeypatch.setattr(crowding, "runnable", lambda roots: 1)
        with crowding.Crowding(lambda: [1], 1) as record:
            until = time.monotonic() + 60
            while not record.own_seconds and time.monotonic() < until:
                time.sleep(0.05)
        denied.append(record.denied_seconds / (record.denied_seconds + record.own_seconds))
    assert denied[0] > 0.9
    assert denied[1] == 0


class Scheduler:
    """A fake source of waiting and running times, which the test sets."""

    def __init__(self, *told: tuple[float, ...]) -> None:
        self.told = list(told)

    def __call__(self) -> tuple[float, ...]:
        return self.told.pop(0) if len(self.told) > 1 else self.told[0]


@pytest.mark.parametrize(
    ("told", "extensions"),
    [
        ([(0, 0), (0, 0)], 0),  # asleep
        ([(7, 3), (7, 3)], 0),  # what was before does not count
        ([(7, 3), (7.5, 3.5), (7.5, 4)], 1),  # half of the time it waited, and then no more
        ([(0, 0), (0.9, 1.0)], 0),  # it has had its second
        ([(0, 0), (0.5, 0.1), (0.8, 0.2), (0.8, 0.5)], 2),
        ([(9, 9), (0, 0)], 0),  # it has ended
        ([(0, 0, 0), (0.9, 0.1, 1.0)], 0),  # it has had its second, in processes that left no record
    ],
)
def test_an_allowance_grows_by_what_was_waited(told: list[tuple[float, ...]], extensions: int) -> None:
    allowance = Allowance(1.0, Scheduler(*told))
    allowance.begin()
    assert [allowance.extend() for _ in range(3)].count(True) == extensions


def test_allowance_is_bounded() -> None:
    allowance = Allowance(1.0, Scheduler((0, 0), (50, 0.1)))
    allowance.begin()
    for _ in range(MOST - 1):
        assert allowance.extend()
    with pytest.raises(StarvedError, match=r"in 4 times the 1 s .* for 0.1 s"):
        allowance.extend()


def test_a_loop_on_a_busy_machine_gets_its_time_and_is_known_as_one() -> None:
    """With a sixth of a processor it has used its second after six; with a twentieth the machine is at fault."""

    def ends(share: float, later: float = 1) -> int:
        used = [min(at, 4) * share + max(0, at - 4) * share * later for at in range(40)]
        told = [(at - mine, mine) for at, mine in enumerate(used)]
        allowance = Allowance(1.0, Scheduler(*told))
        allowance.begin()
        return [allowance.extend() for _ in range(39)].index(False)

    assert ends(1 / 6) == 5
    with pytest.raises(StarvedError, match="in 4 times the 1 s"):
        ends(1 / 20)
    with pytest.raises(StarvedError, match="in 8 times the 1 s"):
        ends(1 / 6, later=1 / 10)


TRIALS = """
import os, sys, threading
from concurrent.futures import ThreadPoolExecutor
from mlsys_grading.sandbox.confine import Sandbox, refusal
over = threading.Event()
written = 0
def write():
    global written
    while not over.is_set():
        os.write(2, b"another thread's line\\n")
        written += 1
        over.wait(0.0005)
writer = threading.Thread(target=write)
writer.start()
with ThreadPoolExecutor(6) as pool:
    trials = [None, Sandbox(cpus=(4095,))] * 9
    told = list(pool.map(refusal, trials))
over.set()
writer.join()
refused = [each for each in told if each.startswith("the sandbox could not be made")]
print(written, told.count(""), len(refused), {len(each.splitlines()) for each in refused})
"""


def test_a_trial_sandbox_leaves_other_threads_standard_error_alone() -> None:
    if reason := refusal():
        pytest.skip(f"this machine allows no sandbox: {reason}")
    found = subprocess.run([sys.executable, "-c", TRIALS], capture_output=True, text=True, timeout=600)
    written, *told = found.stdout.split(maxsplit=1)
    assert told == ["9 9 {1}\n"], found.stdout
    assert found.stderr == "another thread's line\n" * int(written)
