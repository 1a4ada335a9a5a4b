"""One worker process: its start, requests, waits that Ctrl-C can interrupt, and its end, expected or not.

Reference: Linux manual pages eventfd(2), pidfd_open(2), prctl(2).
"""

from __future__ import annotations

import codecs
import contextlib
import ctypes
import mmap
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from mlsys_labkit._base import limits
from mlsys_labkit.cuda.errors import CudaError, CudaLaunchError, CudaWorkerError, KernelInterrupt
from mlsys_labkit.cuda.kernel.simulator import protocol

_START_SECONDS = 30.0
_STOP_SECONDS = 0.15  # a request that is cancelled has this long to end before its process is killed
_SLICE_SECONDS = 0.05  # between looks at the output of a running kernel
_LAST_WORDS_BYTES = 4096
_NOTEBOOK_SPIN_SECONDS = 100e-6  # a sleeping process takes 50 us to wake, longer than a small launch takes
_WORKER_SPIN_MICROSECONDS = 200
_PAYLOAD = protocol.Control.payload.offset
_TEXT = protocol.Control.output.offset + protocol.OutputStruct.text.offset
_GO_ON = "device arrays keep their content, and the next launch starts another"
_SIGNALS: dict[int, str] = {
    signal.SIGSEGV: "SIGSEGV (it touched an address that is not its own)",
    signal.SIGBUS: "SIGBUS (the memory behind an address is gone)",
    signal.SIGABRT: "SIGABRT (abort, or a smashed stack or heap)",
    signal.SIGILL: "SIGILL (an illegal instruction)",
    signal.SIGFPE: "SIGFPE (an integer division)",
    signal.SIGTERM: "SIGTERM (someone ended it)",
}


class WorkerProcess:
    """A worker, from its start to its death. One request is under way at a time; callers see to that.

    Args:
        wants: the rule that it keeps, by its name in the environment: LK_CUDA_GUARDED (``guard.h``), LK_CUDA_SEALED
            (``seal.h``); "" for none.

    Attributes:
        control: the shared memory; fill in ``control.request``, then ``submit`` and ``wait``.
        arena_address: where the worker sees the arena.
    """

    def __init__(
        self, executable: Path, arena_file: int, arena_bytes: int, arena_address: int, wants: str = ""
    ) -> None:
        cores = limits.usable_cores()
        self._spin_seconds = _NOTEBOOK_SPIN_SECONDS if cores >= 2 else 0.0
        control_file = os.memfd_create("labkit-control", os.MFD_CLOEXEC)
        os.ftruncate(control_file, ctypes.sizeof(protocol.Control))
        self._memory = mmap.mmap(control_file, ctypes.sizeof(protocol.Control))
        self.control = protocol.Control.from_buffer(self._memory)
        self._submitted = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._completed = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        lifeline_end, self._lifeline = os.pipe()
        self._errors, errors_end = os.pipe()
        os.set_blocking(self._errors, False)
        os.set_blocking(errors_end, False)  # a worker that fills the pipe loses text and is not blocked
        inherited = (control_file, arena_file, self._submitted, self._completed, lifeline_end)
        numbers = (arena_bytes, arena_address, _WORKER_SPIN_MICROSECONDS if cores >= 2 else 0)
        self._process = subprocess.Popen(
            [str(executable), *map(str, inherited), *map(str, numbers)],
            stdin=subprocess.DEVNULL,
            stdout=errors_end,
            stderr=errors_end,
            pass_fds=inherited,
            env={"LK_CUDA_THREADS": str(max(1, int(cores))), **os.environ, **({wants: "1"} if wants else {})},
        )
        for file in (control_file, lifeline_end, errors_end):
            os.close(file)
        self._last_words = b""
        self._pending = True  # its first reply is Hello
        self._sequence = 0
        self._poll = select.poll()
        self._pidfd: int | None = None
        with contextlib.suppress(OSError, AttributeError):  # if a sandbox refuses it, rely on the pipe's end
            self._pidfd = os.pidfd_open(self._process.pid)
            self._poll.register(self._pidfd, select.POLLIN)
        for file in (self._completed, self._errors):
            self._poll.register(file, select.POLLIN)
        if not self.wait(_START_SECONDS):
            self.kill()
            raise CudaWorkerError(
                f"the simulator's worker process did not start within {_START_SECONDS:.0f} s; try again"
            )
        own, workers = protocol.own_sizes(), protocol.workers_sizes(self.control)
        if differing := [name for name, size in own.items() if workers[name] != size]:
            self.close()
            raise CudaWorkerError(f"the worker lays out {', '.join(differing)} in another way; reinstall mlsys-labkit")
        self.arena_address = int(self.control.hello.arena_address)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def ask(
        self,
        command: protocol.Command,
        payload: bytes,
        changes: list[tuple[int, int]],
        seconds: float,
        on_slice: Callable[[], None] = lambda: None,
    ) -> None:
        """Send ``control.request`` and wait for ``control.reply``. No request is under way when this returns or raises.

        Raises CudaWorkerError when the worker died or had to be killed, CudaError when it cannot map a buffer.
        """
        if len(payload) > protocol.PAYLOAD_BYTES:
            raise CudaLaunchError(f"the arguments take {len(payload):,} bytes; a launch has room for 32,764")
        request = self.control.request
        request.command = command
        request.changes = len(changes)
        for place, change in enumerate(changes):
            self.control.changes[place] = change
        request.payload_bytes = len(payload)
        self._memory[_PAYLOAD : _PAYLOAD + len(payload)] = payload
        self._sequence += 1
        request.sequence = self._sequence
        try:
            self._pending = True
            os.eventfd_write(self._submitted, 1)
            answered = self.wait(seconds, on_slice)
        except KeyboardInterrupt:
            self.stop()
            raise KernelInterrupt("stopped before the kernel had ended; the next launch goes on as usual") from None
        except BaseException:
            self.stop()
            raise
        if not answered and not self.stop():
            raise CudaWorkerError(f"the kernel's process did not answer for {seconds:g} s and was killed; {_GO_ON}")
        if self.control.reply.failed == protocol.OUT_OF_MAPPINGS:
            raise CudaError(f"out of memory: {self.control.reply.error.decode()}; free device arrays")

    def section(self, index: int) -> bytes:
        """Return a part of the reply."""
        part = self.control.reply.sections[index]
        start = protocol.Control.results.offset + part.offset
        return self._memory[start : start + part.bytes]

    def printed(self, begin: int, end: int) -> bytes:
        """Return text that the kernel has printed."""
        return self._memory[_TEXT + begin : _TEXT + end]

    def wait(self, seconds: float, on_slice: Callable[[], None] = lambda: None) -> bool:
        """Wait for the reply, at most ``seconds``: False when that was too short.

        Raises CudaWorkerError when it died.
        """
        now = time.monotonic()
        deadline, spin_end = now + seconds, now + min(seconds, self._spin_seconds)
        while True:
            remaining = deadline - now
            events = self._poll.poll(0 if now < spin_end else 1000 * max(0.0, min(_SLICE_SECONDS, remaining)))
            if events and self._take_reply():
                return True
            if events:
                self._notice(events)
            now = time.monotonic()
            if now >= spin_end:
                on_slice()
            if now >= deadline:
                return False

    def stop(self) -> bool:
        """End the request under way: cancel it, or else kill the process. Return True when its reply came after all."""
        if not self._pending:
            return False
        with contextlib.suppress(CudaWorkerError, OSError):
            os.write(self._lifeline, self._sequence.to_bytes(8, sys.byteorder))
            if self.wait(_STOP_SECONDS):
                return True
        self.kill()
        return False

    def kill(self) -> None:
        self._process.kill()
        self.close()

    def close(self) -> None:
        """End the process if it still runs, and close everything but the shared memory."""
        if self._lifeline < 0:
            return
        os.close(self._lifeline)  # the worker ends at once, even while a kernel runs
        self._lifeline = -1
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._close_files()

    def disown(self) -> None:
        """Leave the process to the parent of a forked child, so that the child does not keep it alive."""
        os.close(self._lifeline)
        self._lifeline = -1
        self._process.returncode = 0  # the parent's child: Popen must not wait for it
        self._close_files()

    def _close_files(self) -> None:
        for file in (self._submitted, self._completed, self._errors, self._pidfd):
            if file is not None:
                os.close(file)

    def _take_reply(self) -> bool:
        try:
            os.eventfd_read(self._completed)
        except BlockingIOError:
            return False
        self._pending = False
        return True

    def _notice(self, events: list[tuple[int, int]]) -> None:
        """Read the worker's stderr; raise CudaWorkerError if the worker has ended."""
        with contextlib.suppress(BlockingIOError):
            self._last_words = (self._last_words + os.read(self._errors, 1 << 16))[-_LAST_WORDS_BYTES:]
        ended = any(file == self._pidfd or (file == self._errors and event & select.POLLHUP) for file, event in events)
        if ended and not self._take_reply():
            self.close()
            raise CudaWorkerError(f"{_obituary(self._process.returncode, self._last_words)}; {_GO_ON}")


class Printer:
    """A printer of what a launch prints, on sys.stdout while it runs. The text is kept in ``text``."""

    def __init__(self, worker: WorkerProcess) -> None:
        self.text = ""
        self._worker = worker
        self._shown = self._seen = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def show_new(self) -> None:
        """Show the text that was counted at the last call; by now all of its bytes have arrived."""
        self._show(self._seen)
        self._seen = min(self._worker.control.output.bytes, protocol.OUTPUT_BYTES)

    def finish(self) -> None:
        """Show the rest, and report how many bytes did not fit."""
        self._show(min(self._worker.control.output.bytes, protocol.OUTPUT_BYTES), final=True)
        if dropped := self._worker.control.output.dropped:
            self._write(
                f"\n[the kernel printed {dropped:,} bytes more; the first {protocol.OUTPUT_BYTES:,} are kept]\n"
            )

    def _show(self, end: int, final: bool = False) -> None:
        if end > self._shown or final:
            self._write(self._decoder.decode(self._worker.printed(self._shown, end), final))
            self._shown = end

    def _write(self, text: str) -> None:
        if text:
            self.text += text
            sys.stdout.write(text)


def _obituary(status: int, last_words: bytes) -> str:
    """Return the cause of the worker's death, in one line."""
    if status >= 0:
        cause = f"called exit({status})"
    elif -status == signal.SIGKILL:
        cause = "was killed (SIGKILL), by the system's out-of-memory killer unless someone did it by hand"
    else:
        cause = f"died of {_SIGNALS.get(-status) or f'signal {-status}'}"
    lines = last_words.decode(errors="replace").strip().splitlines()
    return f"the kernel's process {cause}" + (f' and said "{lines[-1].strip()}"' if lines else "")
