"""Waits for a worker's states, another interpreter, and a real Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.cuda.worker_kernels import Kernels

ROOT = Path(__file__).resolve().parents[2]


def pid(kernels: Kernels) -> int:
    return kernels.process.pid


def wait_until(condition: Callable[[], bool], what: str) -> None:
    for _ in range(6000):
        if condition():
            return
        time.sleep(0.02)
    raise AssertionError(f"not within 120 s: {what}")


def processor_ticks(process_id: int) -> int:
    """Return the processor time of a process, in ticks of the clock."""
    fields = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def wait_until_it_spins(worker: int) -> None:
    before = processor_ticks(worker)
    wait_until(lambda: processor_ticks(worker) > before + 1, "a kernel that runs in the worker")


def gone(process_id: int) -> bool:
    try:
        return Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


class notebook(subprocess.Popen[str]):
    """Another interpreter that runs a script; it is ended with the test."""

    def __init__(self, script: str, **options: Any) -> None:
        super().__init__(
            [sys.executable, "-c", script],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **options,
        )

    def __exit__(self, *error: object) -> None:
        self.kill()
        super().__exit__(*error)


class interrupted:
    """A real SIGINT to this process, from another thread."""

    def __init__(self, after: float) -> None:
        self.timer = threading.Timer(after, lambda: os.kill(os.getpid(), signal.SIGINT))

    def __enter__(self) -> None:
        self.timer.start()

    def __exit__(self, *_: object) -> None:
        self.timer.join()
