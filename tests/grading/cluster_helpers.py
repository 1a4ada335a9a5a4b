"""A dask cluster on this machine, and jobs for it."""

from __future__ import annotations

import os
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from mlsys_grading.grade.job import GradingJob
from tests.grading.test_grade_engine import answer, job

distributed = pytest.importorskip("distributed")

ENGINES = Path(__file__).parents[2] / "grading" / "engines"


@contextmanager
def cluster(place: Path, workers: int = 2, resources: dict[str, float] | None = None, **more: Any) -> Iterator[Any]:
    options = {"dashboard_address": None, "local_directory": str(place), "silence_logs": 50, "threads_per_worker": 1}
    with distributed.LocalCluster(**options | more, n_workers=workers, resources=resources) as made:
        yield made


def slow(text: str) -> str:
    """Note the worker's pid, take some seconds or wait for a file, and note the pid again."""
    found = GradingJob.from_json(text)
    wanted = found.source[0]["metadata"]
    with open(wanted["notes"], "a") as notes:
        notes.write(f"{found.student} {os.getpid()} {time.monotonic()} began\n")
    time.sleep(wanted["seconds"])
    while wanted["until"] and not os.path.exists(wanted["until"]):
        time.sleep(0.02)
    with open(wanted["notes"], "a") as notes:
        notes.write(f"{found.student} {os.getpid()} {time.monotonic()} ended\n")
    return answer(text)


def slow_job(student: str, notes: Path, seconds: float = 0.5, until: str = "", **more: Any) -> GradingJob:
    metadata = {"notes": str(notes), "seconds": seconds, "until": until}
    cells = [{"cell_type": "code", "source": "", "metadata": metadata}]
    return job(student, source=cells, submission=[], **more)


def spans(notes: Path) -> list[tuple[str, int, float, float]]:
    """Return (student, worker, start, end) of each job that ended."""
    begun: dict[tuple[str, str], float] = {}
    found = []
    for line in notes.read_text().splitlines():
        student, pid, at, what = line.split()
        if what == "began":  # perhaps again: a worker that was silent for too long may get its job a second time
            begun[student, pid] = float(at)
        else:
            found.append((student, int(pid), begun[student, pid], float(at)))
    return found


def settings_file(folder: Path, text: str) -> Path:
    path = folder / "engine.toml"
    path.write_text(textwrap.dedent(text))
    return path
