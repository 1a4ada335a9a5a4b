"""What one worker needs to know; light, because the process that hands it out imports no papermill."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Job:
    """One notebook to execute, with everything its worker needs.

    ``notebook`` is read and never written; ``executed`` (a notebook) and ``page`` (HTML) are written, ``log`` takes
    what the kernel says outside of cells; ``cwd`` is where the kernel starts; ``sockets`` is a short folder of this
    job's own.
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
