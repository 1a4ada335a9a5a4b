"""A dask scheduler and workers as an operator starts them: by their commands, each a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mlsys_grading.processes import kill_tree

QUIET = {"DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": "5s", "DASK_LOGGING__DISTRIBUTED": "critical"}


def dask(place: Path, command: str, *options: str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, **QUIET, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with open(place / f"{command}.log", "ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", f"distributed.cli.dask_{command}", *options],
            env=environment,
            stdout=log,
            stderr=log,
        )


def start_scheduler(place: Path) -> tuple[subprocess.Popen[bytes], str]:
    """Start a dask scheduler; return its process and its address."""
    file = place / "scheduler.json"
    file.unlink(missing_ok=True)
    process = dask(
        place, "scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", str(file)
    )
    until = time.monotonic() + 240
    while time.monotonic() < until:
        try:
            return process, json.loads(file.read_text())["address"]
        except (OSError, ValueError):
            time.sleep(0.05)
    kill_tree(process.pid)
    raise TimeoutError("no scheduler")


def start_worker(place: Path, address: str, *options: str) -> subprocess.Popen[bytes]:
    own = ("--nthreads", "1", "--no-dashboard", "--local-directory", str(place / "workers"))
    return dask(place, "worker", address, *own, *options)


@contextmanager
def scheduler(place: Path, workers: int, *options: str) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    process, address = start_scheduler(place)
    started = [process, *(start_worker(place, address, *options) for _ in range(workers))]
    try:
        yield process, address
    finally:
        for each in started:
            kill_tree(each.pid)
            each.wait()
