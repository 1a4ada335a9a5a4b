"""Campaign: steps within a budget of seconds, each case in a process that can be lost, each outcome on disk at once."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.gpu.client import WorkerEndedError, WorkerProcess
from benchmarks.gpu.machine import clocks
from benchmarks.gpu.plan import Step, chosen_cases
from benchmarks.gpu.progress import Progress
from benchmarks.gpu.results import StepResults

START_SECONDS = 120.0  # to import torch on a cold disk and to list the cases
LEAST_SECONDS = 2.0  # with less left than this, no case begins


@dataclass(frozen=True)
class Settings:
    """Choices of one run of the campaign.

    Attributes:
        before: folders with results of earlier calls, beside ``out``.
        python: interpreter of the worker processes.
        again: run the cases again that failed or were not measured.
        stand_in: run over the driver in host memory of the tests.
    """

    out: Path
    before: tuple[Path, ...]
    python: str
    budget: float
    again: bool = False
    stand_in: bool = False


@dataclass(frozen=True)
class _Running:
    """One step while it runs: what its threads share."""

    step: Step
    limits: dict[str, dict[str, Any]]
    results: StepResults
    progress: Progress
    waiting: deque[str]
    deadline: float


class Campaign:
    """A run of steps, one after the other. ``left`` are the names of the steps that still have cases to run."""

    def __init__(self, settings: Settings, machine: dict[str, Any]) -> None:
        self.left: list[str] = []
        self.bad: list[str] = []
        self._settings = settings
        self._machine = machine
        self._until = time.monotonic() + settings.budget
        self._open: set[WorkerProcess] = set()
        self._stopping = False

    def run(self, steps: Sequence[Step]) -> None:
        """Run the steps. Raises ValueError for a pattern that matches no case; Ctrl-C ends the workers first."""
        todo = deque(steps)
        try:
            while todo:
                self._run_step(todo[0], later=[*todo][1:])
                todo.popleft()
        finally:
            self._stopping = True
            for worker in [*self._open]:
                worker.close()
            self.left += [step.name for step in todo if step.name not in self.left]

    def _run_step(self, step: Step, later: Sequence[Step]) -> None:
        settings, room = self._settings, self._until - time.monotonic()
        progress = Progress(step, later)
        if room < LEAST_SECONDS:
            self.left.append(step.name)
            return
        results = StepResults(step.name, settings.out, self._machine, settings.before)
        if results.finished and not settings.again:
            progress.skip(len(results.cases))
            return
        progress.begin(min(room, step.seconds))
        with self._worker(step) as first:
            try:
                limits = first.cases(min(room, START_SECONDS))
            except WorkerEndedError as error:
                results.add("start", {"ok": False, "error": str(error), "more": error.said})
                progress.case("start", results.cases["start"])
                self.bad.append(f"{step.name}/start")
                self.left.append(step.name)
                return
        results.forget(["start"])
        names = chosen_cases(step, [*limits])
        if settings.again:
            results.forget([name for name in names if _unsettled(results.cases.get(name, {}))])
        waiting = deque(name for name in names if name not in results.cases)
        progress.count(len(names), len(names) - len(waiting))
        deadline = min(self._until, time.monotonic() + step.seconds)
        running = _Running(step, limits, results, progress, waiting, deadline)
        with ThreadPoolExecutor(step.workers) as pool:
            threads = [pool.submit(self._run_cases, running) for _ in range(min(step.workers, len(waiting)))]
            try:
                for thread in threads:
                    thread.result()
            except BaseException:
                self._stopping = True
                for worker in [*self._open]:
                    worker.close()
                raise
        results.finish([*limits])
        bad = [name for name in names if results.cases.get(name, {}).get("ok") is False]
        self.bad += [f"{step.name}/{name}" for name in bad]
        if any(name not in results.cases for name in names):
            self.left.append(step.name)
        progress.end([results.cases[name] for name in names if name in results.cases])

    def _run_cases(self, running: _Running) -> None:
        """Take cases from those that wait until there is none, with a worker of one's own."""
        with contextlib.ExitStack() as stack:
            worker: WorkerProcess | None = None
            while not self._stopping and running.deadline - time.monotonic() > LEAST_SECONDS:
                try:
                    name = running.waiting.popleft()
                except IndexError:
                    return
                alone = running.limits[name]["alone"]
                if worker is None or alone:
                    stack.close()
                    worker = stack.enter_context(self._worker(running.step))
                outcome = self._outcome(worker, name, running.limits[name]["seconds"], running.deadline)
                if outcome is None:
                    return  # what is left of the budget was too little: the next call runs this case
                running.results.add(name, outcome | {"clocks": clocks()})
                running.progress.case(name, outcome)
                if alone or "error" in outcome:  # the process may have lost the GPU
                    stack.close()
                    worker = None

    def _outcome(self, worker: WorkerProcess, name: str, seconds: float, deadline: float) -> dict[str, Any] | None:
        began = time.monotonic()
        try:
            if not worker.listed:
                worker.cases(min(START_SECONDS, deadline - began))
            room = deadline - time.monotonic()
            return worker.run(name, min(seconds, room))
        except WorkerEndedError as error:
            cut = error.late and time.monotonic() >= deadline and time.monotonic() - began < seconds
            if cut or self._stopping:
                return None
            took = round(time.monotonic() - began, 3)
            return {"ok": False, "error": str(error), "more": list(error.said), "seconds": took}

    @contextlib.contextmanager
    def _worker(self, step: Step) -> Iterator[WorkerProcess]:
        module = step.module or f"benchmarks.gpu.steps.{step.name}"
        worker = WorkerProcess(self._settings.python, module, stand_in=self._settings.stand_in)
        self._open.add(worker)
        try:
            yield worker
        finally:
            self._open.discard(worker)
            worker.close()


def _unsettled(outcome: dict[str, Any]) -> bool:
    return outcome.get("ok") is False or "not_measured" in outcome
