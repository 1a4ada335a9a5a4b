"""A lab, one submission to it, and a process that writes its marks again and again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from mlsys_grading.gradebook.gradebook import Gradebook
from mlsys_grading.gradebook.submission import match
from tests.grading.gradebook_helpers import answered, lab, result, rows

WRITTEN = {"double": "def double(x):\n    return 2 * x", "why": "Because.", "draw": "1"}
REGISTERED = lab()
SUBMISSION = match(REGISTERED, answered(WRITTEN))


def write(path: Path, count: int, said: Connection) -> None:
    """Write many results, as a grading run does, in a process of its own."""
    with Gradebook(path, "mlsys") as book:
        book.register(REGISTERED)
        for at in range(count):
            submission = match(REGISTERED, answered({"why": f"answer {at}"} if at % 2 else {}))
            made = result(f"s{at:03d}", f"job{at}", points={"halve_test": at % 5 / 2})
            book.record(REGISTERED, submission, made, f"2030-01-{at % 28 + 1:02d} 10:00 UTC")
            said.send(made.student)


@contextmanager
def writer(path: Path, count: int) -> Iterator[tuple[BaseProcess, Connection]]:
    fork = get_context("fork")
    hear, said = fork.Pipe(duplex=False)
    process = fork.Process(target=write, args=(path, count, said))
    process.start()
    said.close()
    try:
        yield process, hear
    finally:
        process.kill()
        process.join()


def undisturbed(path: Path, count: int) -> dict[str, list[tuple[Any, ...]]]:
    with writer(path, count) as (process, _):
        process.join()
        assert process.exitcode == 0
    return rows(path)
