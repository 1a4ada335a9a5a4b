"""kill -9 of any grading process at any moment: after another run the gradebook equals that of an undisturbed run."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

from mlsys_grading import scratch
from mlsys_grading.grade.store import FOLDER, Store
from mlsys_grading.processes import kill_tree
from tests.grading.dask_processes import start_scheduler, start_worker
from tests.grading.gradebook_helpers import LAB, rows
from tests.grading.test_grade import LABKIT, RIGHT, course, hand_in

pytestmark = [
    pytest.mark.usefixtures("sandbox_allowed"),
    pytest.mark.xdist_group("kills"),
]

PAUSE = "import time\ntime.sleep(0.3)\n"
KINDS: list[dict[str, str | None]] = [
    RIGHT | {"double": PAUSE + RIGHT["double"]},
    RIGHT | {"double": "def double(x):\n    return min(2 * x, 4)"},
    RIGHT | {"halve": "import os\ndef halve(x):\n    os._exit(0)"},
    RIGHT | {"double": "raise RuntimeError('no')"},
    {"double": RIGHT["double"], "halve": None},
    {"halve": PAUSE + RIGHT["halve"]},
]


@dataclass
class Class:
    """A course folder, graded by the real command, in a process that may be killed."""

    root: Path
    submissions: int
    jobs: int = 2
    engine: str = "local"
    said: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        course(self.root)
        for at in range(self.submissions):
            student = f"s{at:03d}"
            hand_in(self.root, student, KINDS[at % len(KINDS)])
            if at % 5 == 0:
                (self.root / "submitted" / student / LAB / "timestamp.txt").write_text("2030-01-31 12:00:00 UTC")

    def start(self, *options: str) -> subprocess.Popen[str]:
        command = [*LABKIT, "grade", LAB, "--course", str(self.root), "--jobs", str(self.jobs), "--engine", self.engine]
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        return subprocess.Popen([*command, *options], **pipes, start_new_session=True)

    def graded(self) -> dict[str, float]:
        """Return the stored marks of the students graded so far."""
        store, found = Store(self.root), {}
        for path in (self.root / FOLDER / "results" / LAB).glob("*.json"):
            if (result := store.result(LAB, path.stem)) is not None:
                found[path.stem] = result.points
        return found

    def written(self) -> int:
        return len(list((self.root / FOLDER / "written" / LAB).glob("*.json")))


class Cluster:
    """A dask scheduler and workers that are started again, as an operator's service manager does."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self.scheduler, self.address = start_scheduler(place)
        self.workers = [start_worker(place, self.address) for _ in range(2)]

    def again(self) -> None:
        """Start the cluster again if its scheduler has been killed."""
        if self.scheduler.poll() is not None:
            self.close()
            self.__init__(self._place)  # type: ignore[misc]

    def close(self) -> None:
        for each in (self.scheduler, *self.workers):
            kill_tree(each.pid)
            each.wait()


def below(pid: int) -> list[psutil.Process]:
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).children(recursive=True)
    return []


def is_server(process: psutil.Process) -> bool:
    """Return whether the process is a fork server. Its forks have its command line, but a fork server as parent."""
    with suppress(psutil.NoSuchProcess):
        parent, module = process.parent(), "mlsys_grading.fork_server.server"
        return parent is not None and module in process.cmdline() and module not in parent.cmdline()
    return False


class Killer:
    def __init__(self, seed: int, kinds: list[str]) -> None:
        self._random, self.left = random.Random(seed), kinds
        self.done: Counter[str] = Counter()

    def strike(self, grader: subprocess.Popen[str], cluster: Cluster | None) -> None:
        """Kill one process of the next kind, if there is one just now."""
        kind = self.left[-1]
        victims = self._victims(kind, grader, cluster)
        if not victims:
            return
        with suppress(psutil.NoSuchProcess, ProcessLookupError):
            os.kill(self._random.choice(victims), signal.SIGKILL)
            self.done[kind] += 1
            self.left.pop()

    def pause(self, most: float = 0.6) -> None:
        time.sleep(self._random.uniform(0, most))

    def _victims(self, kind: str, grader: subprocess.Popen[str], cluster: Cluster | None) -> list[int]:
        if kind == "grader":
            return [grader.pid]
        if kind == "scheduler":
            return [cluster.scheduler.pid] if cluster and cluster.scheduler.poll() is None else []
        roots = [grader.pid, *(each.pid for each in cluster.workers)] if cluster else [grader.pid]
        found = [process for root in roots for process in below(root)]
        if kind == "server":
            return [process.pid for process in found if is_server(process)]
        workers = [
            process for root in roots[1:] for process in psutil.Process(root).children() if not is_server(process)
        ]
        return [process.pid for process in workers if "spawn_main" in " ".join(_line(process))]


def _line(process: psutil.Process) -> list[str]:
    with suppress(psutil.NoSuchProcess):
        found: list[str] = process.cmdline()
        return found
    return []


def disturbed(found: Class, killer: Killer, expected: dict[str, float], cluster: Cluster | None = None) -> int:
    """Run, kill, and run again until all is graded; returns how many runs it took."""
    runs = 0
    until = time.monotonic() + 1500
    while True:
        runs += 1
        assert time.monotonic() < until, found.said[-3:]
        if cluster:
            cluster.again()
            found.engine = f"dask:{cluster.address}"
        again = ["--force"] if killer.left and found.written() == found.submissions else []
        grader = found.start(*again)
        before = _stamp(found)
        while killer.left and grader.poll() is None:
            if _stamp(found) != before:  # the grader is at work
                killer.pause()
                killer.strike(grader, cluster)
                before = _stamp(found)
            time.sleep(0.02)
        said, _ = grader.communicate(timeout=300)
        found.said.append(said)
        assert "Traceback" not in said
        so_far = found.graded()
        assert so_far == {student: expected[student] for student in so_far}, "nobody is worse off for a kill"
        if grader.returncode == 0 and not killer.left:
            return runs
        assert grader.returncode in (-signal.SIGKILL, 0, 1, 2), said


def _stamp(found: Class) -> float:
    """Return the time of the last write of a result."""
    return max((path.stat().st_mtime for path in found.root.glob(f"{FOLDER}/*/{LAB}")), default=0.0)


def pages(root: Path) -> dict[str, str]:
    """Return the graded notebooks and feedback pages, without the parts that depend on the clock."""
    found = {}
    for path in sorted([*root.glob("autograded/*/*/*"), *root.glob("feedback/*/*/*")]):
        text = path.read_text()
        text = re.sub(r'"(seconds|restarts|job)": ("\w+"|[\d.e-]+)', "", text)
        found[str(path.relative_to(root))] = text
    return found


def alive_in(place: Path) -> list[list[str]]:
    lines = [_line(process) for process in psutil.process_iter()]
    return [line for line in lines if any(str(place) in part for part in line)]


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """Make a temporary folder for all started processes; its path is short, because sockets are made in it."""
    with tempfile.TemporaryDirectory(prefix="kills-") as folder:
        monkeypatch.setenv("TMPDIR", folder)
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
        yield Path(folder)


@pytest.fixture(scope="module")
def undisturbed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Class:
    """Grade a class without a kill."""
    submissions = getattr(request, "param", 6)
    made = Class(tmp_path_factory.mktemp("undisturbed") / "class", submissions)
    grader = made.start()
    said, _ = grader.communicate(timeout=600)
    assert grader.returncode == 0, said
    assert len(made.graded()) == submissions
    assert len(set(made.graded().values())) > 2, "a class of zeros would be the same whatever happened"
    return made


def check(engine: str, undisturbed: Class, kinds: list[str], seed: int, place: Path, root: Path) -> dict[str, Any]:
    expected, submissions = undisturbed.graded(), undisturbed.submissions
    found, killer = Class(root / "disturbed", submissions), Killer(seed, list(kinds))
    cluster = Cluster(place) if engine == "dask" else None
    try:
        runs = disturbed(found, killer, expected, cluster)
    finally:
        if cluster:
            cluster.close()
    assert sum(killer.done.values()) == len(kinds)
    assert rows(found.root / "gradebook.db") == rows(undisturbed.root / "gradebook.db")
    ours, theirs = pages(found.root), pages(undisturbed.root)
    assert ours.keys() == theirs.keys()
    assert not [name for name in ours if ours[name] != theirs[name]]
    assert not list(found.root.rglob("*.part")), "scraps of files that were half written"

    until = time.monotonic() + 240
    while left := alive_in(place):
        assert time.monotonic() < until, left
        time.sleep(0.1)
    scratch.sweep("labkit-warm", place)
    scratch.sweep("labkit-beside", place)
    assert not list(place.glob("labkit-*")), "folders that no later run would sweep"
    return {"engine": engine, "submissions": submissions, "kills": dict(killer.done), "runs": runs}


@pytest.mark.parametrize(
    ("engine", "kinds"),
    [
        ("local", ["grader", "server", "grader"]),
        pytest.param("dask", ["grader", "scheduler", "worker"], marks=pytest.mark.soak),
    ],
)
def test_grading_after_kills_equals_undisturbed_grading(
    engine: str, kinds: list[str], undisturbed: Class, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if engine == "dask":
        pytest.importorskip("distributed")
    monkeypatch.setattr(scratch, "GRACE_SECONDS", 0.0)
    check(engine, undisturbed, kinds, 1, place, tmp_path)


@pytest.mark.soak
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("undisturbed", [100], indirect=True)
@pytest.mark.parametrize("engine", ["local", "dask"])
def test_grading_after_fifty_kills_equals_undisturbed_grading(
    engine: str, undisturbed: Class, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scratch, "GRACE_SECONDS", 0.0)
    seed = random.SystemRandom().randrange(1 << 30)
    sorts = ["grader", "server"] + (["worker", "scheduler"] if engine == "dask" else [])
    kinds = random.Random(seed).choices(sorts, k=50)
    print(json.dumps(check(engine, undisturbed, kinds, seed, place, tmp_path) | {"seed": seed}))
