"""Many notebooks at once: one worker process per notebook, forked from one process that has imported everything.

Importing papermill costs seconds; a fork server pays them once. Threads would not do: papermill changes the process's
working directory. The parent stays single-threaded, watches deadlines and memory, and survives whatever a notebook
does.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from typing import Any

from mlsys_grading import processes
from mlsys_grading.report.result import Failure, NotebookResult, Status
from mlsys_grading.run.job import NotebookJob

TICK_SECONDS = 0.1


@dataclass
class Running:
    """A notebook that is running, for the pool and for its observer."""

    job: NotebookJob
    process: Any
    events: Connection
    started: float
    begun_seconds: float
    cell: int | None = None
    grade_id: str | None = None
    cells_done: int = 0
    peak_bytes: int = 0
    result: NotebookResult | None = None

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started


Observer = Callable[[Sequence[Running], Sequence[NotebookResult]], None]


def execute(
    jobs: Sequence[NotebookJob],
    at_once: int,
    notebook_seconds: float,
    observe: Observer = lambda running, finished: None,
) -> tuple[list[NotebookResult], bool]:
    """Execute ``jobs``, ``at_once`` of them at a time, in the order given.

    Returns:
        A result for each job that was started, in the order of finishing, and whether Ctrl-C cut the run short. A job
        that was under way then has the status ``interrupted``; nothing that any notebook started is left running.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["mlsys_grading.run.worker"])
    resource_tracker.ensure_running()  # started here, because its start unblocks signals
    begun = time.monotonic()
    waiting = list(jobs)
    running: list[Running] = []
    finished: list[NotebookResult] = []
    try:
        while waiting or running:
            while waiting and len(running) < at_once:
                # Or Ctrl-C would end the fork server while it imports, or lose the worker that it is about to fork.
                with processes.interrupts_held():
                    running.append(_start(context, waiting.pop(0), begun))
            wait([one.events for one in running] + [one.process.sentinel for one in running], timeout=TICK_SECONDS)
            for one in list(running):
                _listen(one)
                one.peak_bytes = max(one.peak_bytes, processes.tree_memory_bytes(one.process.pid))
                result = _ended(one, notebook_seconds)
                if result is not None:
                    finished.append(result)
                    running.remove(one)
            observe(running, finished)
    except KeyboardInterrupt:
        finished += [_stopped(one, "interrupted", None) for one in running]
        running = []
        return finished, True
    finally:
        for one in running:
            processes.kill_tree(one.process.pid)
    return finished, False


def _start(context: Any, job: NotebookJob, begun: float) -> Running:
    here, there = context.Pipe(duplex=False)
    environment = dict(os.environ) | processes.thread_variables(job.threads)
    process = context.Process(target=_work, args=(job, environment, there), name=job.name)
    process.start()
    there.close()
    now = time.monotonic()
    return Running(job, process, here, now, now - begun)


def _work(job: NotebookJob, environment: dict[str, str], events: Connection) -> None:
    # Imported here, in the worker, where it is there already; the parent never pays for it.
    from mlsys_grading.run.worker import work

    work(job, environment, events)


def _listen(one: Running) -> None:
    with suppress(EOFError, OSError):
        while one.events.poll():
            message = one.events.recv()
            if message[0] == "cell":
                one.cell, one.grade_id, one.cells_done = message[1:]
            else:
                one.result = message[1]


def _ended(one: Running, notebook_seconds: float) -> NotebookResult | None:
    """Return the result of a notebook that has ended or run out of time, else None."""
    is_dead = one.result is None and not one.process.is_alive()
    if is_dead:
        _listen(one)  # its result may have come since the last look
    if one.result is not None:
        one.process.join()
        peak_bytes = max(one.peak_bytes, one.result.peak_bytes or 0) or None
        return replace(one.result, peak_bytes=peak_bytes, begun_seconds=one.begun_seconds)
    if is_dead:
        failure = Failure("set-up", "the worker that ran the notebook died", one.cell, one.grade_id)
    elif one.seconds > notebook_seconds:
        message = f"notebook still running after {notebook_seconds:g} s (--timeout-notebook)"
        failure = Failure("notebook timeout", message, one.cell, one.grade_id)
    else:
        return None
    return _stopped(one, "failed", failure)


def _stopped(one: Running, status: Status, failure: Failure | None) -> NotebookResult:
    seconds = one.seconds
    processes.kill_tree(one.process.pid)
    one.process.join()
    ran = {"seconds": seconds, "begun_seconds": one.begun_seconds, "peak_bytes": one.peak_bytes or None}
    return one.job.result(status, failure=failure, **ran)
