"""Terminal output while submissions are graded: a line for each one, and on a terminal a bar below."""

from __future__ import annotations

import shutil
import time
from typing import TextIO

from mlsys_grading.report.clock import clock

__all__ = ["GradingProgress"]

BAR_CELLS = 24


class GradingProgress:
    """A progress display on ``stream``; ``total`` is the number of submissions.

    Example:
        >>> import sys
        >>> progress = GradingProgress(sys.stdout, 2)
        >>> progress.advance("ada  5/5")
        ada  5/5
    """

    def __init__(self, stream: TextIO, total: int) -> None:
        self._stream, self._total = stream, total
        self._live = stream.isatty()
        self._done = self._graded = self._running = 0
        self._started = time.monotonic()
        self._drawn = 0.0

    def advance(self, line: str = "", graded: bool = True) -> None:
        """Count one more as done; ``graded`` is False for one that took no time and does not count for the pace."""
        self._done += 1
        self._graded += graded
        if line:
            self._clear()
            print(line, file=self._stream, flush=True)
            self._drawn = 0.0
        self.tick(self._running)

    def tick(self, running: int) -> None:
        """Draw the bar again, if enough time has passed."""
        self._running = running
        if self._live and time.monotonic() - self._drawn > 0.1:
            self._drawn = time.monotonic()
            columns = shutil.get_terminal_size().columns
            self._stream.write(f"\r\x1b[K{self._bar()[: columns - 1]}")
            self._stream.flush()

    def close(self) -> None:
        """Remove the bar."""
        self._clear()
        self._stream.flush()

    def eta_seconds(self) -> float | None:
        """Return the seconds left at the pace so far; None before there is a pace."""
        if not self._graded:
            return None
        return (time.monotonic() - self._started) / self._graded * (self._total - self._done)

    def _bar(self) -> str:
        filled = round(self._done / max(self._total, 1) * BAR_CELLS)
        eta = self.eta_seconds()
        left = "starting" if eta is None else f"about {clock(eta)} left"
        elapsed = clock(time.monotonic() - self._started)
        bar = "━" * filled + "╌" * (BAR_CELLS - filled)
        return f"{bar} {self._done}/{self._total} · {self._running} under way · {elapsed} · {left}"

    def _clear(self) -> None:
        if self._live:
            self._stream.write("\r\x1b[K")
