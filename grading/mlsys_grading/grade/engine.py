"""Executors for jobs, on this machine or a cluster, and what to do when one fails.

Local threads need no interpreter each: a thread waits for its fork server, and all of the work is in other processes.
"""

from __future__ import annotations

import contextlib
import json
import queue
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from mlsys_grading.grade.bounds import Bounds
from mlsys_grading.grade.cluster import AGAIN, connected
from mlsys_grading.grade.job import GradingJob
from mlsys_grading.grade.settings import read_settings, started
from mlsys_grading.grade.work import GradingWorker, infrastructure, work
from mlsys_grading.result import Result
from mlsys_labkit.errors import LabkitError

Work = Callable[[str], str]
_TRIES = 2
_TICK_SECONDS = 0.2
_NO_WORKER_SECONDS = 120.0


@dataclass(frozen=True)
class Done:
    """A job's result, and the contract of the calls that its submission made."""

    result: Result
    contract: dict[str, list[str]]


@dataclass(frozen=True)
class GradingEngine:
    """An executor of jobs, and the number of jobs it takes.

    Attributes:
        executor: of the standard library's kind; ``place(bounds)`` is the one for jobs of these bounds, by default it.
        slots: how many jobs it can do at once, which may change.
        work: does one.
    """

    executor: Executor
    slots: int | Callable[[], int]
    work: Work = work
    place: Callable[[Bounds], Executor] | None = None

    def run(self, jobs: Iterable[GradingJob], tick: Callable[[int], None] = lambda running: None) -> Iterator[Done]:
        """Run jobs, in no order; ``jobs`` is read only as there is room, so that few are held in memory.

        A job whose worker fails is done a second time, by another; when that fails, too, its result has the status
        "infrastructure". ``tick(number of jobs under way)`` is called several times a second. Raises LabkitError when
        the whole executor is broken.
        """
        waiting = iter(jobs)
        running: dict[Future[str], tuple[GradingJob, int]] = {}
        again: list[tuple[GradingJob, int]] = []
        # Not concurrent.futures.wait: a Ctrl-C inside it can leave a future locked, and its thread waits for ever.
        finished: queue.SimpleQueue[Future[str]] = queue.SimpleQueue()
        try:
            while True:
                slots = self.slots if isinstance(self.slots, int) else self.slots()
                while len(running) < 2 * slots:
                    job, tries = again.pop() if again else (next(waiting, None), 0)
                    if job is None:
                        break
                    future = self._submit(job)
                    running[future] = job, tries + 1
                    future.add_done_callback(finished.put)
                if not running:
                    return
                tick(min(len(running), slots))
                try:
                    future = finished.get(timeout=_TICK_SECONDS)
                except queue.Empty:
                    continue
                job, tries = running.pop(future)
                if future.cancelled():
                    raise LabkitError(f"the engine has dropped what was under way; {AGAIN}")
                done = _done(future, job)
                if done.result.status == "infrastructure" and tries < _TRIES:
                    again.append((job, tries))
                else:
                    yield done
        finally:
            for future in running:
                future.cancel()

    def _submit(self, job: GradingJob) -> Future[str]:
        executor = self.place(job.bounds) if self.place else self.executor
        try:
            return executor.submit(self.work, job.to_json())
        except Exception as error:  # each kind of executor has its own exception for being broken
            raise LabkitError(f"the engine takes no more jobs ({error}); {AGAIN}") from None


def _done(future: Future[str], job: GradingJob) -> Done:
    try:
        plain = json.loads(future.result())
        return Done(Result.from_json(plain["result"]), plain["contract"] or {})
    except Exception as error:  # each kind of executor has its own exception for a dead worker
        return Done(infrastructure(job, f"{type(error).__name__}: {error}"), {})


@contextlib.contextmanager
def open_engine(name: str, jobs: int) -> Iterator[GradingEngine]:
    """Open the engine ``local``, with ``jobs`` at once; ``dask:ADDRESS`` of a dask scheduler; or a settings file's.

    Leaving the ``with`` block, by Ctrl-C as well, ends what is under way here. Raises LabkitError for another name, or
    a cluster that cannot be used.
    """
    kind, _, address = name.partition(":")
    if name == "local":
        with _local(jobs) as engine:
            yield engine
        return
    if kind == "dask" and address:
        opening = connected(address, _NO_WORKER_SECONDS)
    elif Path(name).suffix == ".toml":
        opening = started(read_settings(Path(name)))
    else:
        raise LabkitError(
            f"--engine {name}: expected local, dask:ADDRESS such as dask:tcp://scheduler:8786, or a settings file "
            "such as grading/engines/slurm.toml"
        )
    with opening as cluster:
        yield GradingEngine(cluster.place(Bounds()), cluster.slots, place=cluster.place)


@contextlib.contextmanager
def _local(jobs: int) -> Iterator[GradingEngine]:
    worker = GradingWorker()
    several, alone = (ThreadPoolExecutor(count, thread_name_prefix="grade") for count in (jobs, 1))
    try:
        # All jobs of a lab have the same bounds, and labs come one after another, so one thread runs nothing beside it.
        yield GradingEngine(several, jobs, worker.work, place=lambda bounds: alone if bounds.timing else several)
    finally:
        for executor in (several, alone):
            executor.shutdown(wait=False, cancel_futures=True)
        worker.close()
        for executor in (several, alone):
            executor.shutdown()
