"""The examiner's connection to the grader: it sends verdicts and receives connections to student's processes.

A message is a JSON line; what the grader answers is bytes, or a socket.
"""

from __future__ import annotations

import json
import signal
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mlsys_grading.boundary.allowance import Allowance
from mlsys_grading.boundary.errors import BoundaryError

_SOON_SECONDS = 0.02
_PROGRESS_SECONDS = 1.0  # far less than a silence
_RECENT_SECONDS, _RECENT_SHARE = 0.1, 0.02  # a reading so old, at most, also of the limit, stands for one of now


class CellTimeoutError(BoundaryError):
    """An error: a test cell took too long."""


@contextmanager
def time_standing_still() -> Iterator[None]:
    """Stop the clock of ``GraderLink.deadline`` in the block, which may lie in another such block."""
    left_seconds, _ = signal.setitimer(signal.ITIMER_REAL, 0)
    try:
        yield
    finally:
        if left_seconds:
            signal.setitimer(signal.ITIMER_REAL, left_seconds)


class GraderLink:
    """One connection; threads may share it.

    Attributes:
        begun: the examiner's cell that runs now.
    """

    def __init__(self, control: socket.socket) -> None:
        self.begun = ""
        self._control = control
        self._others = 0
        self._reported: tuple[str, float] = "", 0.0
        self._exchanging = threading.Lock()
        self._read: tuple[float, tuple[float, float, float]] | None = None

    def say(self, message: dict[str, Any]) -> None:
        """Send a message that needs no answer."""
        self._control.sendall(json.dumps(message).encode() + b"\n")

    def report_progress(self) -> None:
        """Report progress: the grader treats a silence longer than any cell may take as the machine's fault.

        Each report wakes the grader, so one is sent for each cell, and others now and then.
        """
        cell, at = self._reported
        if cell != self.begun or time.monotonic() > at + _PROGRESS_SECONDS:
            self._reported = self.begun, time.monotonic()
            self.say({"begun": self.begun})

    def interrupt(self) -> None:
        """Request an interrupt of the student's process."""
        self.say({"interrupt": True})

    def restart(self, left_out: int | None) -> socket.socket | None:
        """Request a new student's process without the cell at this place; return None if none can be started."""
        self._read = None
        self.say({"restart": {"left_out": left_out}})
        _, descriptors, _, _ = socket.recv_fds(self._control, 1, 1)
        return socket.socket(fileno=descriptors[0]) if descriptors else None

    def report_slow(self, cell: str) -> None:
        """Report a student's cell that took long: a process made for one call runs only what the cell defines."""
        self.say({"slow": cell})

    def report_hung(self, cell: str) -> None:
        """Report a student's cell that did not end, or ended its process: no further process runs it whole.

        The first report leaves what the cell defines, the second one nothing.
        """
        self.say({"hung": cell})

    def end_another(self, number: int) -> None:
        """Request the end of one of the processes of ``start_another``."""
        self.say({"end": number})

    def start_another(self, whole: bool, alone: bool) -> tuple[socket.socket, int, int]:
        """Request another student's process; return it, its resident bytes, and its number.

        The cell's time stands still meanwhile: on a busy machine the fork server waits for a processor, which no record
        of the student's processes shows.

        Args:
            whole: it runs the submission's own cells whole, not only what they define.
            alone: it may not have children.
        """
        self._read = None
        with time_standing_still(), self._exchange({"another": {"whole": whole, "alone": alone}}):
            answer, descriptors, _, _ = socket.recv_fds(self._control, 8, 1)
            self._others += 1
            number = self._others
        return socket.socket(fileno=descriptors[0]), int.from_bytes(answer, "little"), number

    def peak_bytes(self, reset: bool = False) -> int:
        """Return the largest resident set, since the last reset, of the process started last."""
        with self._exchange({"peak": reset}):
            return int.from_bytes(self._control.recv(8), "little")

    def standing(self) -> tuple[float, float, float]:
        """Return how many seconds the student's processes have waited for a processor and used one.

        Used by the kernel's record, and by their share of what was runnable.
        """
        return self._ask_standing()[:3]

    @contextmanager
    def deadline(self, seconds: float) -> Iterator[None]:
        """Raise CellTimeoutError in the block after ``seconds``, not counting waits for a processor."""
        allowance = Allowance(seconds, self._standing_of_both)
        allowance.begin(self._recent_standing(min(_RECENT_SECONDS, _RECENT_SHARE * seconds)))

        def stop(*_: object) -> None:
            if self._exchanging.locked():  # the answer to a question of ours would be taken for that to another
                signal.setitimer(signal.ITIMER_REAL, _SOON_SECONDS)
            elif allowance.extend():
                signal.setitimer(signal.ITIMER_REAL, allowance.until - time.monotonic())
            else:
                raise CellTimeoutError(f"the cell took more than {seconds:g} s")

        previous = signal.signal(signal.SIGALRM, stop)
        signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, previous)

    def _recent_standing(self, oldest_seconds: float) -> tuple[float, float, float]:
        """Return the last reading of both processes' times, or a new one: most cells are shorter than a reading."""
        if self._read is None or time.monotonic() - self._read[0] > oldest_seconds:
            before = time.monotonic()
            self._read = before, self._standing_of_both()
        return self._read[1]

    def _standing_of_both(self) -> tuple[float, float, float]:
        """Add this process's times to the student's: one of the two always runs, or would."""
        waited, used, shared, waited_here = self._ask_standing()
        own = time.process_time()
        return waited + waited_here, used + own, shared + own

    def _ask_standing(self) -> tuple[float, float, float, float]:
        """Ask for the student's times, and how long this process waited, which no file in a sandbox says."""
        with self._exchange({"standing": None}):
            waited, used, shared, waited_here = struct.unpack("<4d", self._control.recv(32))
        return waited, used, shared, waited_here

    @contextmanager
    def _exchange(self, question: dict[str, Any]) -> Iterator[None]:
        """Send a question; the block reads the answer before another question may follow."""
        with self._exchanging:  # ranks have threads of their own
            self.say(question)
            yield
