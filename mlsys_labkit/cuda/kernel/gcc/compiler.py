"""Calls of g++ with a time limit; a full disk, a crash and a refused program raise different errors."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from mlsys_labkit.cuda.errors import CudaCompileError, CudaError
from mlsys_labkit.cuda.kernel.gcc.toolchain import Toolchain
from mlsys_labkit.cuda.time_limits import compile_seconds

# The system may hand Ctrl-C to any thread, and only the main one acts on it, when it next runs: no wait is longer.
_PULSE_SECONDS = 0.2
_T = TypeVar("_T")
_running: set[subprocess.Popen[str]] = set()


@dataclass
class CompilerFailed(Exception):
    """A failure of g++; ``text`` is all its output."""

    text: str


@contextlib.contextmanager
def started(command: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[str]]:
    """Start a compiler that is killed at the end of the block, with its children; its output comes through a pipe."""
    made: Future[subprocess.Popen[str]] = Future()

    def start() -> None:
        try:
            # A new session, so that Ctrl-C reaches this process only, which then kills the compiler.
            process = subprocess.Popen(
                command, stdout=subprocess.PIPE, text=True, errors="replace", start_new_session=True, **options
            )
            _running.add(process)
            made.set_result(process)
        except BaseException as error:
            made.set_exception(error)

    # In a thread, because a Ctrl-C inside Popen would leave a compiler that nobody knows.
    starting = threading.Thread(target=start)
    try:
        starting.start()
        yield result(made)
    finally:
        if starting.ident is not None:
            starting.join()
        if made.done() and made.exception() is None:
            process = made.result()
            if process.poll() is None:
                _kill(process)
                process.communicate()
            _running.discard(process)


@contextlib.contextmanager
def threads(count: int) -> Iterator[ThreadPoolExecutor]:
    """Provide threads that compile. An error cancels work not yet begun; Ctrl-C kills running compilers as well."""
    with ThreadPoolExecutor(count) as pool:
        try:
            yield pool
        except KeyboardInterrupt:
            ending = threading.Thread(target=pool.shutdown, kwargs={"cancel_futures": True})
            ending.start()
            while ending.is_alive():  # a thread may just have begun another compiler
                for process in list(_running):
                    _kill(process)
                ending.join(0.02)
            raise
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def said_by(process: subprocess.Popen[str], given: str | None = None, seconds: float = float("inf")) -> str:
    """Give a compiler its input, wait for its end and return its output.

    Raises subprocess.TimeoutExpired after ``seconds``.
    """
    until = time.monotonic() + seconds
    while True:
        try:
            return process.communicate(given, timeout=_PULSE_SECONDS)[0]
        except subprocess.TimeoutExpired:
            if time.monotonic() > until:
                raise
            given = None  # it is being written already


def result(work: Future[_T]) -> _T:
    """Wait for the result of a thread and return it. Ctrl-C interrupts the wait."""
    # Not concurrent.futures.wait: a Ctrl-C inside it can leave the future locked, and its thread waits for ever.
    ended: queue.SimpleQueue[Future[_T]] = queue.SimpleQueue()
    work.add_done_callback(ended.put)
    while True:
        with contextlib.suppress(queue.Empty):
            return ended.get(timeout=_PULSE_SECONDS).result()


def _kill(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def run(toolchain: Toolchain, arguments: Sequence[str | os.PathLike[str]], folder: Path) -> str:
    """Run the compiler in ``folder`` and return its output.

    Raises CompilerFailed when it refuses its input, CudaCompileError when it takes too long, CudaError when the machine
    is at fault.
    """
    command = [*toolchain.command, *(os.fspath(argument) for argument in arguments)]
    seconds = compile_seconds()
    environment = {**os.environ, "LC_ALL": "C", "TMPDIR": os.fspath(folder)}
    with started(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stderr=subprocess.STDOUT) as process:
        try:
            said = said_by(process, seconds=seconds)
        except subprocess.TimeoutExpired:
            raise CudaCompileError(
                f"g++ did not finish within {seconds:g} s and was stopped; take away #pragma unroll, "
                "or templates that expand into each other"
            ) from None
    if process.returncode == 0:
        return said
    if "No space left on device" in said or "Disk quota exceeded" in said:
        raise OSError(28, "No space left on device")
    if process.returncode < 0 or "Killed signal terminated program" in said:
        raise CudaError("g++ was killed, most likely because memory ran out; close other notebooks and try again")
    if "internal compiler error" in said:
        raise CudaError(
            f"g++ {toolchain.version} crashed on this source; try another version (CXX=g++-13)\n{said[-2000:]}"
        )
    raise CompilerFailed(said)
