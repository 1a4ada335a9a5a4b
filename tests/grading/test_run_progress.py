"""Tests of the terminal output of ``labkit run``: a block that is redrawn, with an estimate of the time left."""

from __future__ import annotations

import io
import time
from pathlib import Path

import pytest

from mlsys_grading.report.clock import clock
from mlsys_grading.report.result import Failure, NotebookResult
from mlsys_grading.run.job import NotebookJob
from mlsys_grading.run.pool import Running
from mlsys_grading.run.progress import RunProgress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    def screen(self) -> list[str]:
        """Return the lines that a terminal would show; "up N lines", "clear below" and colours are interpreted."""
        lines: list[str] = []
        row = 0
        for part in self.getvalue().replace("\x1b[J", "\x00").split("\n"):
            while part.startswith("\x1b[") and "A" in part[:6]:
                up, _, part = part[2:].partition("A")
                row -= int(up)
            if part.startswith("\x00"):
                del lines[row:]
                part = part[1:]
            lines[row:] = [part]
            row += 1
        return lines[:-1]


def job(name: str) -> NotebookJob:
    here = Path()
    return NotebookJob(name, name, here, here, here, here, here, here, "")


def running(name: str, done: int) -> Running:
    return Running(job(name), None, None, time.monotonic(), 0.0, cell=3, cells_done=done, peak_bytes=250_000_000)


def test_a_terminal_shows_finished_notebooks_above_one_line_a_running_one():
    stream = Terminal()
    progress = RunProgress(stream, {"a": 10.0, "b": 10.0}, {"a": 4, "b": 4})
    progress([running("a", 1), running("b", 0)], [])
    failure = Failure("exception", "ValueError: no", cell=5, grade_id="t_test", line=2)
    progress([running("b", 2)], [NotebookResult("a", "A", "failed", "", seconds=3.0, failure=failure)])
    screen = stream.screen()
    assert len(screen) == 3
    assert "a" in screen[0]
    assert "cell 5 (t_test), line 2: ValueError: no" in screen[0]
    assert "1/2" in screen[1]
    assert "b  cell 3 of 4" in screen[2]
    assert "250 MB" in screen[2]
    progress([], [NotebookResult("a", "A", "failed", ""), NotebookResult("b", "B", "passed", "", seconds=4.0)])
    progress.close()
    assert [line.split()[1] for line in stream.screen()] == ["a", "b"]


def test_the_estimate_weighs_notebooks_by_their_last_time(monkeypatch):
    now = iter([0.0, 30.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(now))
    progress = RunProgress(io.StringIO(), {"long": 90.0, "short": 10.0}, {"long": 4, "short": 4})
    # After 30 s the short one, a tenth of all work, and nothing else is done: nine tenths are left at that pace.
    assert progress.eta_seconds([], [NotebookResult("short", "", "passed", "")]) == pytest.approx(270.0)


def test_there_is_no_estimate_before_there_is_a_pace():
    assert RunProgress(io.StringIO(), {"a": 1.0}, {"a": 4}).eta_seconds([running("a", 0)], []) is None


@pytest.mark.parametrize(("seconds", "text"), [(0.4, "0:00"), (59.6, "1:00"), (75, "1:15"), (3725, "62:05")])
def test_clock(seconds, text):
    assert clock(seconds) == text
