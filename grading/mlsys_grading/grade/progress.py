"""Terminal output while submissions are graded: a line for each one, and on a terminal a bar below."""

from __future__ import annotations

import shutil
import time
from typing import TextIO

from mlsys_grading.report.clock import clock

BAR_CELLS = 24


class Bar:
    """A bar in the last line of a terminal, with the time that is left at the pace so far; nothing on other streams."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._started = stream, time.monotonic()
        self.is_live = stream.isatty()

    def draw(self, done: int, total: int, paced: int, what: str) -> None:
        """Draw the bar; the time so far went into ``paced`` of the ``done``. ``what`` is written after the numbers."""
        if self.is_live:
            filled = round(done / max(total, 1) * BAR_CELLS)
            bar = "━" * filled + "╌" * (BAR_CELLS - filled)
            eta = self._seconds_left(paced, total - done)
            left = "starting" if eta is None else f"about {clock(eta)} left"
            line = f"{bar} {done}/{total}{what} · {clock(time.monotonic() - self._started)} · {left}"
            self._stream.write(f"\r\x1b[K{line[: shutil.get_terminal_size().columns - 1]}")
            self._stream.flush()

    def close(self) -> None:
        """Remove the bar."""
        if self.is_live:
            self._stream.write("\r\x1b[K")
            self._stream.flush()

    def _seconds_left(self, paced: int, left: int) -> float | None:
        return (time.monotonic() - self._started) / paced * left if paced else None


class GradingProgress(Bar):
    """A progress display on ``stream``; ``total`` is the number of submissions.

    Example:
        >>> import sys
        >>> progress = GradingProgress(sys.stdout, 2)
        >>> progress.advance("ada  5/5")
        ada  5/5
    """

    def __init__(self, stream: TextIO, total: int) -> None:
        super().__init__(stream)
        self._total = total
        self._done = self._graded = self._running = 0
        self._drawn = 0.0

    def advance(self, line: str = "", graded: bool = True) -> None:
        """Count one more as done; ``graded`` is False for one that took no time and does not count for the pace."""
        self._done += 1
        self._graded += graded
        if line:
            self.close()
            print(line, file=self._stream, flush=True)
            self._drawn = 0.0
        self.tick(self._running)

    def tick(self, running: int) -> None:
        """Draw the bar again, if enough time has passed."""
        self._running = running
        if time.monotonic() - self._drawn > 0.1:
            self._drawn = time.monotonic()
            self.draw(self._done, self._total, self._graded, f" · {running} under way")

    def eta_seconds(self) -> float | None:
        """Return the seconds left at the pace so far; None before there is a pace."""
        return self._seconds_left(self._graded, self._total - self._done)
