"""A notebook's run under papermill: the current cell, the seconds of each, and the place and reason of a failure."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

import nbformat
from jupyter_client.manager import AsyncKernelManager
from papermill.exceptions import PapermillExecutionError

from mlsys_grading import processes
from mlsys_grading.report.result import CellTime, Failure, Kind

_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


class Watch:
    """An observer of papermill that keeps the current cell, the seconds of each, and the kernel's peak memory."""

    def __init__(self, tell: Callable[[tuple[Any, ...]], None]) -> None:
        self.times: list[CellTime] = []
        self.peak_bytes = 0
        self._tell = tell
        self._expected = 0
        self._manager: AsyncKernelManager | None = None
        self._cell: nbformat.NotebookNode | None = None
        self._number: int | None = None
        self._since = 0.0
        self._injected = 0

    def follow(self, notebook: nbformat.NotebookNode, manager: AsyncKernelManager) -> None:
        """Expect the cells of ``notebook`` to run on the kernel of ``manager``."""
        self._manager = manager
        self._expected = sum(cell.cell_type == "code" and bool(cell.source.strip()) for cell in notebook.cells)

    def start(self, cell: nbformat.NotebookNode, cell_index: int) -> None:
        injected = "injected-parameters" in cell.metadata.get("tags", [])
        self._injected += injected
        self._cell = cell
        self._number = None if injected else cell_index + 1 - self._injected
        self._since = time.monotonic()
        if cell.cell_type == "code" and not injected:
            self._tell(("cell", self._number, grade_id(cell), len(self.times)))

    def executed(self, cell: nbformat.NotebookNode, cell_index: int, execute_reply: object) -> None:
        if self._number is not None:
            self.times.append(CellTime(self._number, time.monotonic() - self._since, grade_id(cell)))
        process = self.process
        if process is not None:
            self.peak_bytes = max(self.peak_bytes, processes.high_water_bytes(process.pid))

    @property
    def process(self) -> Any:
        provisioner = self._manager.provisioner if self._manager else None
        return getattr(provisioner, "process", None)

    def fail(self, kind: Kind, message: str, **more: Any) -> Failure:
        return Failure(kind, message, cell=self._number, grade_id=grade_id(self._cell), **more)

    def locate(self, error: PapermillExecutionError) -> Failure:
        traceback = plain("\n".join(error.traceback))
        # The first frame that is a cell's is the failing cell itself; deeper ones may lie in cells above it.
        frame = re.search(rf"Cell In\[{error.exec_count}\], line (\d+)", traceback)
        line = int(frame.group(1)) if frame else None
        lines = error.source.splitlines()
        message = f"{error.ename}: {first_line(error.evalue)}" if error.evalue else str(error.ename)
        text = lines[line - 1].strip() if line and line <= len(lines) else ""
        where = {"line": line, "source_line": text, "exception": error.ename, "traceback": traceback}
        return self.fail("exception", message, **where)

    def unfinished(self) -> Failure | None:
        """Return a failure if cells were never run: after ``sys.exit(0)`` in a cell papermill reports success."""
        missing = self._expected - len(self.times)
        if missing <= 0:
            return None
        message = f"SystemExit: {missing} code cells were never run"
        return self.fail("exception", message, exception="SystemExit")


def grade_id(cell: nbformat.NotebookNode | None) -> str | None:
    return cell.metadata.get("nbgrader", {}).get("grade_id") if cell is not None else None


def plain(text: str) -> str:
    """Return ``text`` without terminal colours."""
    return _ANSI.sub("", text)


def first_line(error: object) -> str:
    lines = plain(str(error)).strip().splitlines()
    return lines[0] if lines else type(error).__name__
