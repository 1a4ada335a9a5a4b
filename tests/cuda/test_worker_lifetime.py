"""The worker process beside its notebook: its start, its end, forks, threads and limits."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from mlsys_labkit.cuda.errors import CudaError
from mlsys_labkit.cuda.kernel.simulator import arena, process
from mlsys_labkit.cuda.kernel.simulator.client import Simulator
from tests.cuda.worker_helpers import gone, notebook, pid, wait_until, wait_until_it_spins
from tests.cuda.worker_kernels import Kernels

START = """
import os, sys, threading, time
from mlsys_labkit.cuda.kernel.simulator.client import Simulator
from tests.cuda.worker_kernels import Kernels
kernels = Kernels(Simulator.current())
kernels.add()
kept = kernels.array([1])
print(kernels.process.pid, flush=True)
"""


FORKED = "os.fork() or print('forked', flush=True); time.sleep(1000)"


@pytest.mark.parametrize("busy", ["time.sleep(1000)", "kernels.run('spin', grid=8)", FORKED])
def test_no_worker_outlives_its_notebook(busy: str) -> None:
    """Killed while idle, while a kernel runs, and while a forked child still has the notebook's files."""
    with notebook(START + busy, start_new_session=True) as running:
        worker = int(running.stdout.readline())
        if "spin" in busy:
            wait_until_it_spins(worker)
        elif busy == FORKED:
            assert running.stdout.readline() == "forked\n"
        running.kill()
        wait_until(lambda: gone(worker), "the worker's end")
        os.killpg(running.pid, signal.SIGKILL)  # the forked child


@pytest.mark.parametrize("end", ["", "sys.exit(1)", "raise KeyError", "os._exit(0)"])
def test_the_worker_ends_with_a_notebook_that_ends(end: str) -> None:
    with notebook(START + end) as running:
        worker = int(running.stdout.readline())
        said = running.stderr.read()
        assert "Warning" not in said
        assert "ignored" not in said  # as of a finalizer that fails
        wait_until(lambda: gone(worker), "the worker's end")


def test_the_worker_outlives_the_thread_that_started_it() -> None:
    script = """
import os, threading, time
from mlsys_labkit.cuda.kernel.simulator.client import Simulator
from tests.cuda.worker_kernels import Kernels
kernels = Kernels(Simulator.current())
thread = threading.Thread(target=kernels.add)
thread.start()
thread.join()
before = kernels.process.pid
while os.path.exists(f"/proc/self/task/{thread.native_id}"):  # join does not wait for the end of the system's thread
    time.sleep(0.01)
print(kernels.add(), kernels.process.pid == before, flush=True)
"""
    with notebook(script) as running:
        assert running.stdout.readline() == "True True\n"


def test_a_forked_child_has_a_worker_of_its_own(worker_kernels: Kernels, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arena, "_RETAINED_BYTES", 0)  # what is freed goes back to the system at once
    assert worker_kernels.add()
    parents = pid(worker_kernels)
    inherited, view = worker_kernels.array([1, 2, 3])

    def child(pipe: Any) -> None:
        try:
            try:
                inherited.address  # noqa: B018
            except CudaError as error:
                pipe.send(str(error))
            pipe.send(view.tolist())
            inherited.free()
            own = Kernels(Simulator.current())
            pipe.send((own.add(), pid(own)))
            Simulator.current().close()
        finally:
            pipe.close()

    here, there = multiprocessing.Pipe()
    forked = multiprocessing.get_context("fork").Process(target=child, args=(there,))
    forked.start()
    there.close()
    assert "belongs to the process that forked this one; copy it" in here.recv()
    assert here.recv() == [1, 2, 3]
    works, childs = here.recv()
    assert works
    assert childs != parents
    forked.join()
    assert worker_kernels.add()
    assert pid(worker_kernels) == parents
    assert view.tolist() == [1, 2, 3]
    assert gone(childs)


def test_threads_take_turns(worker_kernels: Kernels) -> None:
    right = []

    def work() -> None:
        right.extend(worker_kernels.add(n) for n in range(1, 2000, 100))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert right == [True] * 80


def test_two_processes_run_kernels_at_once() -> None:
    script = START + "print([kernels.add() for _ in range(200)] == [True] * 200, flush=True)"
    with notebook(script) as one, notebook(script) as other:
        workers = {one.stdout.readline(), other.stdout.readline()}
        assert len(workers) == 2
        assert one.stdout.readline() == other.stdout.readline() == "True\n"


def test_the_worker_is_alone_with_its_files_dumps_no_core_and_goes_first_when_memory_runs_out(
    worker_kernels: Kernels,
) -> None:
    assert worker_kernels.add()
    extra = os.open("/dev/null", os.O_RDONLY)
    os.set_inheritable(extra, True)
    worker_kernels.simulator.close()
    assert worker_kernels.add()
    os.close(extra)
    files = [os.readlink(path) for path in Path(f"/proc/{pid(worker_kernels)}/fd").iterdir()]
    assert sorted(file.partition(":")[0] for file in files if not file.startswith("/memfd")) == [
        "/dev/null",
        *["anon_inode"] * 2,
        *["pipe"] * 3,
    ]
    assert Path(f"/proc/{pid(worker_kernels)}/oom_score_adj").read_text() == "500\n"  # rather than the notebook
    limits = Path(f"/proc/{pid(worker_kernels)}/limits").read_text()
    assert next(line for line in limits.splitlines() if "core file" in line).split()[4:6] == ["0", "0"]


def test_no_more_threads_than_the_machine_grants(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process.limits, "usable_cores", lambda: 1.5)
    simulator = Simulator()
    monkeypatch.setattr(Simulator, "_current", simulator)
    worker_kernels = Kernels(simulator)
    assert worker_kernels.add()
    running = len(list(Path(f"/proc/{pid(worker_kernels)}/task").iterdir()))
    assert running == 3  # the one that listens, the one that watches the lifeline, and one that runs blocks
    simulator.close()
