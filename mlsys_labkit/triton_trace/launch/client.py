"""The notebook's side of the worker process: starts it, sends launches, and replaces it when it dies."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import importlib.util
import mmap
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe as pipe
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from mlsys_labkit.errors import MissingExtraError
from mlsys_labkit.triton_trace.errors import RefusedSourceError, TritonKernelError, TritonTraceError, TritonWorkerError
from mlsys_labkit.triton_trace.interpret import channel
from mlsys_labkit.triton_trace.launch.arguments import Packed
from mlsys_labkit.triton_trace.launch.tritons_errors import also_tritons
from mlsys_labkit.triton_trace.source import KernelSource

Order = Literal["ascending", "reversed"] | int
_START_SECONDS = 60.0
_SLICE_SECONDS = 0.1
_QUIET_SECONDS = 2.0
_GO_ON = "the arrays keep their content, and the next launch starts another"


@dataclass(frozen=True)
class LaunchOutcome:
    """The result of a launch: the recorder's report and arrays, the kernel's output, and the worker's time."""

    report: dict[str, Any]
    arrays: dict[str, NDArray[Any]]
    output: str
    seconds: float  # of the interpreter, never to be reported as a GPU's


class TritonWorker:
    """The worker of this process, started on first use and again after its death. Safe for several threads."""

    _current: ClassVar[TritonWorker | None] = None

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None
        self._lifeline = -1
        self._errors = -1
        self._file = -1

    @staticmethod
    def current() -> TritonWorker:
        """Return the worker of this process; a forked child gets its own."""
        if TritonWorker._current is None:
            TritonWorker._current = TritonWorker()
        return TritonWorker._current

    def launch(
        self,
        source: KernelSource,
        grid: tuple[int, int, int],
        packed: Packed,
        *,
        warps: int = 4,
        recorder: str | None = None,
        order: Order = "ascending",
        timeout_s: float = 120.0,
    ) -> LaunchOutcome:
        """Run every program and bring what it stored back into the caller's arrays.

        Args:
            warps: the launch's num_warps, which a kernel can ask for.
            recorder: "module:Class" inside this package, or None.
            order: of the programs: "ascending" (x fastest, as a GPU starts them), "reversed", or a seed to shuffle by.

        Raises RefusedSourceError before anything ran, TritonKernelError when the kernel failed (nothing is stored
        then), TritonWorkerError when the process died or took too long, KeyboardInterrupt when interrupted.
        """
        layout, size = packed.layout
        request = {
            "source": source.to_json(),
            "grid": grid,
            "warps": warps,
            "arguments": packed.arguments,
            "arrays": [vars(one) for one in packed.arrays],
            "regions": layout,
            "recorder": recorder,
            "order": order,
        }
        with self._lock:
            self._require()
            shared = self._share(layout, size)
            try:
                answer, arrays, output = self._ask(request, grid, timeout_s)
                if "report" in answer:
                    for (copy, own), changed in zip(_pairs(layout, shared), answer["stored"], strict=True):
                        if changed:
                            own[:] = copy
            finally:
                del shared
                os.ftruncate(self._file, 0)
        if "refused" in answer:
            refused = RefusedSourceError(answer["refused"])
            also_tritons(refused)
            raise refused
        if "failed" in answer:
            program = answer["program"]
            error = TritonKernelError(
                answer["failed"], answer["place"], answer["line"], tuple(program) if program else None
            )
            if answer["refusal"]:
                also_tritons(error, answer["refusal"], answer["cause"])
            raise error
        if "broken" in answer:
            raise TritonTraceError(f"the interpreter cannot run this kernel: {answer['broken']}")
        return LaunchOutcome(answer["report"], arrays, output, answer["seconds"])

    def close(self) -> None:
        """End the process; the next launch starts another."""
        with self._lock:
            self._end()

    def _share(self, layout: list[dict[str, Any]], size: int) -> NDArray[np.uint8]:
        os.ftruncate(self._file, size)
        shared = np.frombuffer(mmap.mmap(self._file, size), np.uint8) if size else np.empty(0, np.uint8)
        for copy, own in _pairs(layout, shared):
            copy[:] = own
        return shared

    def _ask(
        self, request: dict[str, Any], grid: tuple[int, int, int], timeout_s: float
    ) -> tuple[dict[str, Any], dict[str, NDArray[Any]], str]:
        """Send a launch and wait for its end; print its output and progress meanwhile."""
        connection = self._connection
        assert connection is not None
        output, done, count = "", 0, grid[0] * grid[1] * grid[2]
        started = time.monotonic()
        progress = _Progress(count)
        try:
            channel.send(connection, request)
            while True:
                if time.monotonic() - started > timeout_s:
                    self._end(kill=True)
                    raise TritonWorkerError(
                        f"the kernel was stopped after {timeout_s:g} s, in program {done:,} of {count:,}; "
                        f"trace a smaller grid, or raise timeout_s; {_GO_ON}"
                    )
                if not connection.poll(_SLICE_SECONDS):
                    continue
                message, arrays = channel.receive(connection)
                if text := message.get("text"):
                    output += text
                    sys.stdout.write(text)
                if "done" in message:
                    done = message["done"]
                    progress.show(done)
                if not message.keys() & {"text", "done"}:
                    return message, arrays, output
        except (EOFError, ConnectionError, BrokenPipeError):
            raise TritonWorkerError(f"{self._obituary()}; {_GO_ON}") from None
        except TritonWorkerError:
            raise
        except BaseException:  # an interrupt, or an alarm of the caller's: the worker must not go on without its memory
            self._end(kill=True)
            raise
        finally:
            progress.clear()

    def _require(self) -> None:
        """Start the worker unless it is running."""
        if self._process is not None and self._process.poll() is None:
            return
        self._end()
        require_triton()
        if self._file < 0:
            self._file = os.memfd_create("labkit-triton", os.MFD_CLOEXEC)
        ours, theirs = pipe()
        lifeline, self._lifeline = os.pipe()
        self._errors, errors = os.pipe()
        os.set_blocking(self._errors, False)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "mlsys_labkit.triton_trace.interpret.worker"]
            + [str(file) for file in (theirs.fileno(), self._file, lifeline)],
            stdin=subprocess.DEVNULL,
            stdout=errors,
            stderr=errors,
            pass_fds=(theirs.fileno(), self._file, lifeline),
            start_new_session=True,  # the notebook handles Ctrl-C
            env={**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        )
        theirs.close()
        os.close(lifeline)
        os.close(errors)
        self._connection = ours
        try:
            if not ours.poll(_START_SECONDS):
                self._end(kill=True)
                raise TritonWorkerError(
                    f"the process for Triton did not start within {_START_SECONDS:.0f} s; try again"
                )
            channel.receive(ours)
        except (EOFError, ConnectionError):
            raise TritonWorkerError(self._obituary()) from None
        except KeyboardInterrupt:
            self._end(kill=True)
            raise

    def _obituary(self) -> str:
        process = self._process
        assert process is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(1)
        words = b""
        with contextlib.suppress(BlockingIOError):
            words = os.read(self._errors, 1 << 16)
        self._end(kill=True)
        status = process.returncode
        cause = f"died of {signal.Signals(-status).name}" if status and status < 0 else f"ended with status {status}"
        lines = words.decode(errors="replace").strip().splitlines()
        return f"the process for Triton {cause}" + (f' and said "{lines[-1].strip()}"' if lines else "")

    def _end(self, kill: bool = False) -> None:
        process, self._process = self._process, None
        if self._lifeline >= 0:
            os.close(self._lifeline)
            os.close(self._errors)
            self._lifeline = self._errors = -1
        if self._connection:
            self._connection.close()
            self._connection = None
        if process:
            if kill:
                process.kill()
            try:
                process.wait(1)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _disown(self) -> None:
        """Forget the worker in a forked child, because the process belongs to the parent."""
        if self._process:
            self._process.returncode = 0
            self._process = None
        self._lock = threading.Lock()
        self._file = -1
        self._end()


class _Progress:
    """A line for long launches, erased at their end. It is on stdout: nbgrader fails a test that writes to stderr."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._first = time.monotonic() + _QUIET_SECONDS
        self._shown = 0

    def show(self, done: int) -> None:
        if time.monotonic() >= self._first:
            self._write(f"Triton without a GPU: program {done:,} of {self._count:,}")

    def clear(self) -> None:
        if self._shown:
            self._write("")

    def _write(self, line: str) -> None:
        sys.stdout.write(f"\r{line.ljust(self._shown)}" + ("" if line else "\r"))
        sys.stdout.flush()
        self._shown = len(line)


def _pairs(
    layout: list[dict[str, Any]], shared: NDArray[np.uint8]
) -> Iterator[tuple[NDArray[np.uint8], NDArray[np.uint8]]]:
    """Yield the shared bytes of each region, and the caller's own."""
    for row in layout:
        count, begin = row["stop"] - row["start"], row["offset"] + row["start"] % 16
        yield shared[begin : begin + count], _bytes_at(row["place"], count)


def _bytes_at(place: int, count: int) -> NDArray[np.uint8]:
    if not count:
        return np.empty(0, np.uint8)
    return np.ctypeslib.as_array((ctypes.c_uint8 * count).from_address(place))


def require_triton() -> None:
    """Raise an error with advice where Triton is not installed."""
    if sys.platform != "linux":
        raise TritonTraceError("Triton is there for Linux alone; use WSL on Windows, or open the lab on Binder")
    if importlib.util.find_spec("triton") is None:
        raise MissingExtraError(
            "triton is not installed; run: pip install 'mlsys-labkit[triton]', then restart the kernel"
        )


def _after_fork_in_child() -> None:
    inherited, TritonWorker._current = TritonWorker._current, None
    if inherited:
        inherited._disown()


@atexit.register
def _at_exit() -> None:
    if TritonWorker._current:
        TritonWorker._current.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
