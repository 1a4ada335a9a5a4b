"""One call of g++: bounded in time, its complaints read, a full disk told from a wrong program."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from mlsys_labkit.cuda.build.toolchain import Toolchain
from mlsys_labkit.cuda.errors import CompileError, CudaError

__all__ = ["CompilerFailed", "compile_seconds", "result", "run", "said_by", "started", "threads"]

LIMIT_SECONDS = 60.0
# The system may hand Ctrl-C to any thread, and only the main one acts on it, when it next runs: nobody waits longer.
_PULSE_SECONDS = 0.2
_T = TypeVar("_T")
_running: set[subprocess.Popen[str]] = set()


@dataclass(frozen=True)
class CompilerFailed(Exception):
    """g++ ended with an error; ``text`` is all it said."""

    text: str


def compile_seconds() -> float:
    """How long one call may take: 60 s, or ``LABKIT_CUDA_COMPILE_SECONDS``."""
    return float(os.environ.get("LABKIT_CUDA_COMPILE_SECONDS", LIMIT_SECONDS))


@contextlib.contextmanager
def started(command: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[str]]:
    """A compiler that ends with the block, its children too; what it prints comes through a pipe."""
    # A session of its own, so that Ctrl-C is ours to handle.
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, errors="replace", start_new_session=True, **options
    )
    _running.add(process)
    try:
        yield process
    finally:
        if process.poll() is None:
            _kill(process)
            process.communicate()
        _running.discard(process)


@contextlib.contextmanager
def threads(count: int) -> Iterator[ThreadPoolExecutor]:
    """Threads that compile. After an error no more of their work is begun; after Ctrl-C none is waited for, either."""
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
    """What a compiler prints until it ends, given its input. Raises subprocess.TimeoutExpired after ``seconds``."""
    until = time.monotonic() + seconds
    while True:
        try:
            return process.communicate(given, timeout=_PULSE_SECONDS)[0]
        except subprocess.TimeoutExpired:
            if time.monotonic() > until:
                raise
            given = None  # it is being written already


def result(work: Future[_T]) -> _T:
    """What a thread has made, once it has; Ctrl-C is heard meanwhile."""
    while not work.done():
        wait([work], timeout=_PULSE_SECONDS)
    return work.result()


def _kill(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def run(toolchain: Toolchain, arguments: Sequence[str | os.PathLike[str]], folder: Path) -> str:
    """Run the compiler in ``folder`` and return what it said.

    Raises CompilerFailed when it refuses its input, CompileError when it takes too long, CudaError when it is the
    machine that fails it.
    """
    command = [*toolchain.command, *(os.fspath(argument) for argument in arguments)]
    seconds = compile_seconds()
    environment = {**os.environ, "LC_ALL": "C", "TMPDIR": os.fspath(folder)}
    with started(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stderr=subprocess.STDOUT) as process:
        try:
            said = said_by(process, seconds=seconds)
        except subprocess.TimeoutExpired:
            raise CompileError(
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
