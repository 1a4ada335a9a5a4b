"""Workers forked from a running process, each with a supervisor process of its own.

A supervisor waits for a free slot, forks the worker, keeps its messages, ends it and its descendants when a cell runs
too long, and delivers one result. A worker starts in its parent's state at that line, so that a branch of a half-run
notebook need not run the cells above again.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

from mlsys_grading import processes
from mlsys_grading.sandbox.limits import limit_data

Send = Callable[[dict[str, Any]], None]
Message = dict[str, Any]


class Slots:
    """A fixed number of workers at a time over all processes of a run: a pipe with one byte per slot, as in make."""

    def __init__(self, count: int) -> None:
        self._read, self._write = os.pipe()
        os.write(self._write, b"." * count)

    def take(self) -> None:
        os.read(self._read, 1)

    def give(self) -> None:
        os.write(self._write, b".")


def threads_alive() -> int:
    """Count the threads of this process, those of C libraries included. With more than one, a forked child may hang."""
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return threading.active_count()


def branch(
    work: Callable[[Send], None],
    finish: Callable[[Message], None],
    slots: Slots,
    cell_seconds: float,
    memory_bytes: int,
    fork_for: Callable[[Message], int] | None = None,
) -> int:
    """Fork a supervisor that runs ``work`` in a worker and calls ``finish`` once; returns the supervisor's pid.

    ``work`` sends ``{"start": name}`` before each cell, ``{"ran": …}`` after it and ``{"branched": pid}`` for each
    branch of its own; the supervisor waits for those branches.
    ``finish`` gets ``{"status": "done" | "timeout" | "died", "at": name, "why": text, "ran": [...]}``. On any other
    message ``fork_for`` branches off the supervisor, which has run no cell, and returns the pid.
    """
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        _leave_parent()
        slots.take()
        finish(_supervise(work, slots, cell_seconds, memory_bytes, fork_for))
        code = 0
    except BaseException:  # a fork must never go on with its parent's code
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def wait_all(pids: list[int]) -> None:
    """Wait for supervisors to end, also for those inherited from a worker that is gone."""
    for pid in pids:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)


_pipe_of_worker: int | None = None  # in a worker, the descriptor for its messages


def _leave_parent() -> None:
    """Make a fresh supervisor independent of the worker it was forked from, should that die in a later cell."""
    global _pipe_of_worker
    processes.own_descendants()
    if _pipe_of_worker is not None:
        os.close(_pipe_of_worker)  # otherwise the worker's death would stay unseen while this process lives
        _pipe_of_worker = None


def _supervise(
    work: Callable[[Send], None],
    slots: Slots,
    cell_seconds: float,
    memory_bytes: int,
    fork_for: Callable[[Message], int] | None,
) -> Message:
    read, write = os.pipe()
    worker = os.fork()
    if worker == 0:
        _worker(work, read, write, memory_bytes)
    os.close(write)
    result: Message = {"status": "died", "at": "", "why": "", "ran": []}
    branches: list[int] = []
    deadline, pending = time.monotonic() + cell_seconds, b""
    while True:
        ready, _, _ = select.select([read], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            result |= {"status": "timeout", "why": f"still running after {cell_seconds:g} s"}
            os.kill(worker, signal.SIGKILL)  # only the worker: its branches are valid, and this process inherits them
            break
        data = os.read(read, 1 << 16)
        if not data:
            break
        *lines, pending = (pending + data).split(b"\n")
        for line in lines:
            message = json.loads(line)
            if "start" in message:
                result["at"] = message["start"]
                deadline = time.monotonic() + cell_seconds
            elif "ran" in message:
                result["ran"].append(message["ran"])
            elif "over" in message:
                result["status"] = "done"
            elif "branched" in message:
                branches.append(message["branched"])
            elif fork_for is not None:
                branches.append(fork_for(message))
    _, status = os.waitpid(worker, 0)
    if result["status"] == "died":
        result["why"] = _ended(status)
    slots.give()
    wait_all(branches)
    processes.end_descendants()
    return result


def _worker(work: Callable[[Send], None], read: int, write: int, memory_bytes: int) -> None:
    global _pipe_of_worker
    code = 1
    try:
        _pipe_of_worker = write
        os.close(read)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        limit_data(memory_bytes, gpu=os.path.exists("/proc/driver/nvidia/version"))

        def send(message: Message) -> None:
            data = json.dumps(message).encode() + b"\n"
            while data:
                data = data[os.write(write, data) :]

        work(send)
        send({"over": True})  # a status of 0 says less: a cell may end its process with it
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _ended(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    return (
        f"its process exited with code {code}"
        if code >= 0
        else f"its process was ended by {signal.Signals(-code).name}"
    )
