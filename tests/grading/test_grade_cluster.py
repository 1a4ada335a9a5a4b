"""Grading on dask clusters: real schedulers and workers, as processes of this machine, and settings for larger ones."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from mlsys_grading.gpu.devices import GpuDevice
from mlsys_grading.gpu.lease import lease as real_lease
from mlsys_grading.grade.bounds import Bounds
from mlsys_grading.grade.cluster import connected
from mlsys_grading.grade.engine import GradingEngine, open_engine
from mlsys_grading.grade.modules import modules_of
from mlsys_grading.grade.work import GradingWorker
from mlsys_grading.result import Result
from mlsys_labkit.errors import LabkitError
from tests.grading.cluster_helpers import ENGINES, cluster, slow, slow_job, spans
from tests.grading.dask_processes import scheduler
from tests.grading.gradebook_helpers import cell, graded, notebook
from tests.grading.test_grade import RIGHT, course, grade, hand_in, scores
from tests.grading.test_grade_engine import answer, die, job

distributed = pytest.importorskip("distributed")
pytestmark = pytest.mark.xdist_group("dask")


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() not in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.NoSuchProcess:
        return False


def test_jobs_through_dask(tmp_path: Path) -> None:
    """Workers are separate processes, and jobs and results are text."""
    dask = pytest.importorskip("dask")
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        cluster(tmp_path) as made,
        open_engine(f"dask:{made.scheduler_address}", 1) as engine,
    ):
        assert not isinstance(engine.slots, int)
        assert engine.slots() == 2
        done = list(replace(engine, work=answer).run(job(f"s{number}") for number in range(20)))
        assert sorted(each.result.student for each in done) == sorted(f"s{number}" for number in range(20))
        assert {each.result.points for each in done} == {2.0}
        (apart,) = replace(engine, work=die).run([job("bob")])
        assert apart.result.status == "infrastructure", "a worker that dies, again and again"


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_job_of_a_lost_worker_is_graded_once_elsewhere(tmp_path: Path, how: signal.Signals) -> None:
    dask = pytest.importorskip("dask")
    notes, harmed = tmp_path / "notes", tmp_path / "harmed"
    with (
        # A dead worker is missed at once; one that hangs, when it has been silent for longer than a busy one may be.
        dask.config.set({"distributed.scheduler.worker-ttl": "10s"}),
        cluster(tmp_path) as made,
        open_engine(f"dask:{made.scheduler_address}", 1) as engine,
    ):
        stopped: list[int] = []

        def harm(running: int) -> None:
            if not stopped and notes.exists() and notes.read_text().endswith("\n"):
                stopped.append(int(notes.read_text().split()[1]))
                os.kill(stopped[0], how)
                while _runs(stopped[0]):  # the signal takes effect a moment later
                    time.sleep(0.01)
                harmed.touch()  # not earlier: no job of that worker may come to its end

        jobs = (slow_job(f"s{at}", notes, 0.0, str(harmed)) for at in range(8))
        try:
            done = list(replace(engine, work=slow).run(jobs, harm))
        finally:
            for pid in stopped:
                if how is signal.SIGSTOP and psutil.pid_exists(pid):
                    os.kill(pid, signal.SIGKILL)
    assert stopped
    assert sorted(each.result.student for each in done) == [f"s{at}" for at in range(8)]
    assert {each.result.status for each in done} == {"graded"}
    assert not [pid for _, pid, _, _ in spans(notes) if pid == stopped[0]], "elsewhere"


def test_a_scheduler_that_is_gone_ends_the_run_in_one_line(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    with scheduler(tmp_path, workers=1) as (process, address), open_engine(f"dask:{address}", 1) as engine:

        def harm(running: int) -> None:
            if notes.exists():
                process.kill()

        with pytest.raises(LabkitError, match="what is graded is kept") as caught:
            list(replace(engine, work=slow).run((slow_job(f"s{at}", notes, 30) for at in range(3)), harm))
        assert "\n" not in str(caught.value)


def test_gpu_or_timed_lab_requests_only_its_resources(tmp_path: Path) -> None:
    needs = {"plain": Bounds(), "gpu": Bounds(gpu=True), "timed": Bounds(timing=True)}
    notes = {name: tmp_path / name for name in needs}
    with (
        cluster(tmp_path, 1, {"CPU": 4, "GPU": 1, "TIMING": 1}, threads_per_worker=4) as made,
        open_engine(f"dask:{made.scheduler_address}", 1) as engine,
    ):
        engine = replace(engine, work=slow)

        def grade(name: str) -> None:
            jobs = (slow_job(f"{name}{at}", notes[name], 0.3, bounds=needs[name]) for at in range(4))
            assert {each.result.status for each in engine.run(jobs)} == {"graded"}

        graders = [threading.Thread(target=grade, args=[name]) for name in needs]
        for grader in graders:
            grader.start()
        for grader in graders:
            grader.join()
    found = {name: spans(path) for name, path in notes.items()}
    assert all(len(each) == 4 for each in found.values())
    assert not overlaps(found["gpu"], found["gpu"]), "one GPU, one job"
    assert not overlaps(found["timed"], found["timed"] + found["gpu"] + found["plain"]), "alone on its worker"


def overlaps(some: list[Any], others: list[Any]) -> list[Any]:
    return [(a, b) for a in some for b in others if a is not b and a != b and a[2] < b[3] and b[2] < a[3]]


def test_ordinary_jobs_run_beside_each_other(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    with (
        cluster(tmp_path, 1, {"CPU": 4}, threads_per_worker=4) as made,
        open_engine(f"dask:{made.scheduler_address}", 1) as engine,
    ):
        list(replace(engine, work=slow).run(slow_job(f"s{at}", notes, 1.0) for at in range(4)))
    assert overlaps(spans(notes), spans(notes))


def test_resource_without_a_worker_is_an_error_at_once(tmp_path: Path) -> None:
    with cluster(tmp_path, 1) as made, open_engine(f"dask:{made.scheduler_address}", 1) as engine:
        for bounds, why in ((Bounds(gpu=True), "--resources GPU=1"), (Bounds(timing=True), "TIMING=1")):
            with pytest.raises(LabkitError, match=why):
                list(engine.run([job(bounds=bounds)]))


def test_a_scheduler_without_workers_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mlsys_grading.grade.cluster._CONNECT_SECONDS", 2.0)
    told = pytest.raises(LabkitError, match="has had no worker")
    with cluster(tmp_path, 0) as made, told, connected(made.scheduler_address, 1.0):
        pass
    told = pytest.raises(LabkitError, match="no dask scheduler answers")
    with told as caught, open_engine("dask:tcp://127.0.0.1:1", 1):
        pass
    assert "\n" not in str(caught.value)


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dask_jobqueue", None)
    monkeypatch.setitem(sys.modules, "dask_kubernetes.operator", None)
    for name, library in (("slurm", "dask-jobqueue"), ("kubernetes", "dask-kubernetes")):
        told = pytest.raises(LabkitError, match=f"pip install {library}")
        with told as caught, open_engine(str(ENGINES / f"{name}.toml"), 1):
            pass
        assert "\n" not in str(caught.value)
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(LabkitError, match="pip install distributed"), open_engine("dask:tcp://127.0.0.1:1", 1):
        pass


@pytest.mark.usefixtures("sandbox_allowed")
@pytest.mark.xdist_group("grade")
def test_no_students_code_runs_in_a_workers_own_process(tmp_path: Path) -> None:
    """By the whole command. Without a sandbox, so that a submission can say which process it is in."""
    root, told = course(tmp_path / "class"), tmp_path / "told"
    note = f"import os\nopen({str(told)!r}, 'a').write(f'{{os.getpid()}} {{os.getppid()}}\\n')\n"
    for student in ("ada", "bob"):
        hand_in(root, student, RIGHT | {"double": note + RIGHT["double"]})
    with cluster(tmp_path) as made:
        with distributed.Client(made, set_as_default=False) as client:
            workers = set(client.run(os.getpid).values())
        assert grade(root, "--engine", f"dask:{made.scheduler_address}", "--no-sandbox") == 0
        processes = [[int(pid) for pid in line.split()] for line in told.read_text().splitlines()]
        assert len(processes) == 2
        assert not workers & {pid for line in processes for pid in line}, (
            "nor in a child of a worker's: of its server's"
        )
        servers = {child.pid for worker in workers for child in psutil.Process(worker).children()}
        assert servers, "fork servers, which are kept"
    assert scores(root) == {"ada": 9.0, "bob": 9.0}


@pytest.mark.usefixtures("sandbox_allowed")
@pytest.mark.xdist_group("grade")
def test_a_submission_that_needs_a_gpu_has_one_alone_and_sees_it(tmp_path: Path) -> None:
    """Leases are only counted here; other tests cover devices and their remains."""
    held, most, leased = set(), [0], []
    devices = [GpuDevice(f"GPU-{at}", "none", at, 1 << 30) for at in range(1)]
    free, lock = list(devices), threading.Lock()

    @contextmanager
    def lease(given: Any) -> Iterator[GpuDevice]:
        assert given == devices
        with lock:
            device = free.pop()  # raises if more are asked for than there are
            held.add(device.uuid)
            most[0] = max(most[0], len(held))
            leased.append(device.uuid)
        try:
            yield device
        finally:
            with lock:
                held.discard(device.uuid)
                free.append(device)

    source = cell(
        "import os\n### BEGIN SOLUTION\nseen = os.environ['CUDA_VISIBLE_DEVICES']\n### END SOLUTION",
        "seen",
        solution=True,
    )
    test = graded("seen_test", "assert seen == 'GPU-0', seen", 1)
    cells = notebook(source, test)["cells"]
    worker = GradingWorker(lambda: devices, lease)
    try:
        with ThreadPoolExecutor(2) as executor:
            engine = GradingEngine(executor, 2, worker.work)
            given = {"source": cells, "submission": cells, "contract": None, "modules": modules_of(cells)}
            done = list(engine.run(job(f"s{at}", **given, bounds=Bounds(gpu=True)) for at in range(4)))
            assert [(each.result.status, each.result.why, each.result.points) for each in done] == [
                ("graded", "", 1.0)
            ] * 4
            assert len(leased) == 4
            assert not held
            assert most[0] == 1
            (apart,) = engine.run([job("s6", **given)])
            assert apart.result.points == 0, "a lab that states no GPU sees none"
            assert len(leased) == 4
    finally:
        worker.close()


def test_a_lab_on_a_gpu_is_set_apart_where_there_is_none() -> None:
    worker = GradingWorker(lambda: (), real_lease)
    try:
        cells = notebook(graded("t", "pass", 1))["cells"]
        text = worker.work(job(source=cells, submission=cells, modules=("json",), bounds=Bounds(gpu=True)).to_json())
        found = Result.from_json(json.loads(text)["result"])
        assert (found.status, found.marks) == ("infrastructure", ())
        assert "no GPU is visible" in found.why
    finally:
        worker.close()
