"""Progress while notebooks run: a live block on a terminal, one line per notebook elsewhere."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from typing import TextIO

from mlsys_grading.report.clock import clock
from mlsys_grading.report.result import NotebookResult
from mlsys_grading.run.pool import Running

BAR_CELLS = 24
MARKS = {"passed": ("✓", "32"), "failed": ("✗", "31"), "interrupted": ("■", "33"), "not run": ("–", "33")}


class RunProgress:
    """A drawing of a run's state on ``stream``: the pool calls it as its observer; ``close`` it at the end.

    ``weights`` says how long each notebook is expected to take, in any unit: seconds of an earlier run, or cells.
    """

    def __init__(self, stream: TextIO, weights: dict[str, float], cells: dict[str, int]) -> None:
        self._stream = stream
        self._live = stream.isatty()
        self._weights = weights
        self._cells = cells
        self._width = max((len(name) for name in weights), default=0)
        self._started = time.monotonic()
        self._told = 0
        self._drawn = 0
        self._last = 0.0

    def __call__(self, running: Sequence[Running], finished: Sequence[NotebookResult]) -> None:
        news = [self._finished_line(result) for result in finished[self._told :]]
        self._told = len(finished)
        if not self._live:
            for line in news:
                print(line, file=self._stream, flush=True)
            return
        if not news and time.monotonic() - self._last < 0.2:
            return
        self._last = time.monotonic()
        self._redraw(news, [self._bar(running, finished), *map(self._running_line, running)])

    def close(self) -> None:
        self._redraw([], [])

    def eta_seconds(self, running: Sequence[Running], finished: Sequence[NotebookResult]) -> float | None:
        """Estimate the seconds left at the pace so far; None before there is a pace."""
        done = self._done(running, finished)
        elapsed = time.monotonic() - self._started
        return elapsed * (1 - done) / done if done > 0.02 else None

    def _done(self, running: Sequence[Running], finished: Sequence[NotebookResult]) -> float:
        total = sum(self._weights.values()) or 1.0
        done = sum(self._weights.get(result.name, 0.0) for result in finished)
        for one in running:
            share = one.cells_done / max(self._cells.get(one.job.name, 0), 1)
            done += self._weights.get(one.job.name, 0.0) * min(share, 1.0)
        return done / total

    def _bar(self, running: Sequence[Running], finished: Sequence[NotebookResult]) -> str:
        done = self._done(running, finished)
        filled = round(done * BAR_CELLS)
        eta = self.eta_seconds(running, finished)
        left = f"about {clock(eta)} left" if eta is not None else "starting kernels"
        elapsed = clock(time.monotonic() - self._started)
        return f"{'━' * filled}{'╌' * (BAR_CELLS - filled)} {len(finished)}/{len(self._weights)} · {elapsed} · {left}"

    def _running_line(self, one: Running) -> str:
        total = self._cells.get(one.job.name, 0)
        where = f"cell {one.cells_done + 1} of {total}" if one.cell else "starting"
        return f"  {one.job.name:<{self._width}}  {where} · {one.seconds:.0f} s · {one.peak_bytes / 1e6:.0f} MB"

    def _finished_line(self, result: NotebookResult) -> str:
        mark, colour = MARKS[result.status]
        if self._live:
            mark = f"\x1b[{colour}m{mark}\x1b[0m"
        line = f"{mark} {result.name:<{self._width}}  {result.seconds:6.1f} s"
        if result.peak_bytes:
            line += f"  {result.peak_bytes / 1e6:5.0f} MB"
        if result.resumed:
            line += "  unchanged since it passed"
        if result.failure:
            line += "  " + ": ".join(part for part in (result.failure.where, result.failure.message) if part)
        return line

    def _redraw(self, above: Sequence[str], block: Sequence[str]) -> None:
        if not self._live:
            return
        columns = shutil.get_terminal_size().columns
        up = f"\x1b[{self._drawn}A" if self._drawn else ""
        # A line longer than the terminal would wrap, and the next redraw would start too low.
        lines = [*above, *(line[: columns - 1] for line in block)]
        self._stream.write(up + "\x1b[J" + "".join(f"{line}\n" for line in lines))
        self._stream.flush()
        self._drawn = len(block)
