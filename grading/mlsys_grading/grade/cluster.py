"""A cluster of dask workers: how many jobs it takes, which of its workers may have one, and when it is gone.

Workers need this package and, for a sandbox, Linux. The code that they run is their own; a job is text. No student's
code runs in a worker: it asks its own fork servers, as threads on one machine do.
Reference: https://distributed.dask.org/en/stable/resources.html
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Executor
from typing import Any

from mlsys_grading.grade.bounds import Bounds
from mlsys_labkit.errors import LabkitError

_LOOK_SECONDS = 2.0
_CONNECT_SECONDS = 10.0
AGAIN = "grade again: what is graded is kept"


class DaskWorkers:
    """The workers that one scheduler has now.

    Args:
        client: ``distributed.Client``.
        patience_seconds: how long there may be no worker: a batch system takes its time.
    """

    def __init__(self, client: Any, patience_seconds: float) -> None:
        self._client, self._patience_seconds = client, patience_seconds
        self._executors: dict[tuple[tuple[str, float], ...], Executor] = {}
        self._workers: list[tuple[int, dict[str, float]]] = []
        self._seen = time.monotonic()
        self._looked = float("-inf")

    def slots(self) -> int:
        """Return how many jobs run at once, at least 1. Raises LabkitError if the scheduler or every worker is gone."""
        self._look()
        return max(1, sum(threads for threads, _ in self._workers))

    def place(self, bounds: Bounds) -> Executor:
        """Return the executor for jobs of these bounds.

        Workers say what they have: ``--resources "CPU=8 GPU=1 TIMING=1"``. A job takes a CPU, one that needs a GPU one
        of those as well, and one that is timed all CPUs of a worker, so that nothing runs beside it. Workers that say
        nothing take as many jobs as they have threads. Raises LabkitError if no worker has what is needed.
        """
        self._look()
        asked = tuple(sorted(_asked(bounds, [resources for _, resources in self._workers]).items()))
        if asked not in self._executors:
            self._executors[asked] = self._client.get_executor(pure=False, retries=0, resources=dict(asked))
        return self._executors[asked]

    def wait(self) -> None:
        """Wait until there is a worker. Raises LabkitError if none comes."""
        while not self._workers:
            self._looked = float("-inf")
            self._look()
            if not self._workers:
                time.sleep(_LOOK_SECONDS / 10)

    def _look(self) -> None:
        if time.monotonic() - self._looked < _LOOK_SECONDS:
            return
        try:
            workers = self._client.scheduler_info()["workers"].values()
        except (OSError, RuntimeError, ValueError, TimeoutError) as error:
            raise LabkitError(f"the dask scheduler is gone ({type(error).__name__}); {AGAIN}") from None
        self._workers = [(each["nthreads"], each.get("resources") or {}) for each in workers]
        self._looked = time.monotonic()
        if self._workers:
            self._seen = self._looked
        elif self._looked - self._seen > self._patience_seconds:
            raise LabkitError(
                f"the dask scheduler has had no worker for {self._patience_seconds:g} s; start some, and {AGAIN}"
            )


def _asked(bounds: Bounds, workers: list[dict[str, float]]) -> dict[str, float]:
    """Return the resources that a job of ``bounds`` requests of a worker, given the workers' resources."""
    counted = any("CPU" in each for each in workers)
    asked = {"CPU": 1.0} if counted else {}
    if bounds.gpu:
        if not any(each.get("GPU") for each in workers):
            raise LabkitError("this lab needs a GPU, and no worker has one; start some with --resources GPU=1")
        asked["GPU"] = 1.0
    if bounds.timing:
        whole = {each.get("CPU", 0.0) for each in workers if each.get("TIMING") and (each.get("GPU") or not bounds.gpu)}
        if len(whole) != 1 or 0.0 in whole:
            found = "differ in CPUs" if whole else "are none"
            raise LabkitError(
                "this lab is timed, which takes workers with TIMING=1, and as many CPUs each; "
                f"those that are there {found}; start some with --resources 'CPU=8 TIMING=1'"
            )
        asked |= {"TIMING": 1.0, "CPU": whole.pop()}
    return asked


@contextlib.contextmanager
def connected(address: Any, patience_seconds: float) -> Iterator[DaskWorkers]:
    """Connect to the address of a scheduler, or to a cluster object of dask's.

    Raises LabkitError if nothing answers, or no worker comes.
    """
    distributed = need_library("distributed", "distributed")
    for name in ("asyncio", *logging.root.manager.loggerDict):
        if name.partition(".")[0] in ("distributed", "tornado", "asyncio"):
            logging.getLogger(name).setLevel(logging.CRITICAL)  # this module reports lost connections in one line
    try:
        client = distributed.Client(address, timeout=_CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError) as error:
        raise LabkitError(f"no dask scheduler answers at {address} ({type(error).__name__}: {error})") from None
    try:
        cluster = DaskWorkers(client, patience_seconds)
        cluster.wait()
        yield cluster
    finally:
        with contextlib.suppress(OSError, TimeoutError, RuntimeError):  # the scheduler may be gone
            client.close(timeout=_CONNECT_SECONDS)


def need_library(module: str, distribution: str) -> Any:
    """Import ``module``; raises LabkitError, one line, if it is not installed."""
    ctrl_c = signal.getsignal(signal.SIGINT)
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise LabkitError(
            f"{error.name} is not installed; run: pip install {distribution} (here, and distributed on the workers)"
        ) from None
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, ctrl_c)  # dask_jobqueue takes it for itself, and ends the process quietly
