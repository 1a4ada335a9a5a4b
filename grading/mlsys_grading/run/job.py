"""The input of one worker, in a module without papermill, which the process that hands out jobs must not import."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlsys_grading.report.result import NotebookResult, Status


@dataclass(frozen=True)
class NotebookJob:
    """One notebook to execute, with everything its worker needs.

    ``notebook`` is read and never written; ``executed`` (a notebook) and ``page`` (HTML) are written; ``log`` takes the
    kernel's output outside of cells; the kernel starts in ``cwd``; ``sockets`` is a folder with a short path for this
    job alone.
    """

    name: str
    title: str
    notebook: Path
    executed: Path
    page: Path
    log: Path
    cwd: Path
    sockets: Path
    fingerprint: str
    smoke: bool = False
    seed: int = 0
    cell_seconds: float = 300.0
    threads: int = 1
    cells_total: int = 0

    def result(self, status: Status, **more: Any) -> NotebookResult:
        """Return the result of this notebook; ``more`` are further fields of :class:`NotebookResult`."""
        return NotebookResult(self.name, self.title, status, self.fingerprint, cells_total=self.cells_total, **more)
