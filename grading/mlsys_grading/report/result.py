"""The results of a run: plain frozen data, and its JSON form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

SCHEMA_VERSION = 1

Status = Literal["passed", "failed", "interrupted", "not run"]
Kind = Literal["exception", "cell timeout", "notebook timeout", "kernel died", "out of memory", "unreadable", "set-up"]


@dataclass(frozen=True)
class Failure:
    """The reason why a notebook failed, and the place.

    ``cell`` counts from 1 over all cells of the source notebook, as an editor shows them; ``line`` counts from 1 in
    that cell. Both are None when the failure belongs to no cell. ``message`` is one line; ``traceback`` is plain text.
    """

    kind: Kind
    message: str
    cell: int | None = None
    grade_id: str | None = None
    line: int | None = None
    source_line: str = ""
    exception: str = ""
    traceback: str = ""

    @property
    def where(self) -> str:
        """The place, for example ``cell 7 (offset_test), line 3``; empty when the failure belongs to no cell."""
        if self.cell is None:
            return ""
        name = f" ({self.grade_id})" if self.grade_id else ""
        return f"cell {self.cell}{name}" + (f", line {self.line}" if self.line else "")


@dataclass(frozen=True)
class CellTime:
    """Seconds that one code cell took; ``cell`` counts as in :class:`Failure`."""

    cell: int
    seconds: float
    grade_id: str | None = None


@dataclass(frozen=True)
class NotebookResult:
    """One executed notebook.

    ``begun_seconds`` counts from the start of the run. ``peak_bytes`` is the larger of the process tree's summed PSS,
    sampled, and the largest resident set that the operating system recorded for one process of it; None where neither
    could be read.
    """

    name: str
    title: str
    status: Status
    fingerprint: str
    seconds: float = 0.0
    begun_seconds: float = 0.0
    cells_total: int = 0
    cells: tuple[CellTime, ...] = ()
    peak_bytes: int | None = None
    failure: Failure | None = None
    resumed: bool = False
    page: str | None = None

    @property
    def slowest(self) -> CellTime | None:
        return max(self.cells, key=lambda cell: cell.seconds, default=None)


@dataclass(frozen=True)
class RunResult:
    """All notebooks of one ``labkit run``, and the settings that repeat it."""

    notebooks: tuple[NotebookResult, ...]
    started: str
    seconds: float
    jobs: int
    threads_per_kernel: int
    smoke: bool
    seed: int
    interrupted: bool = False
    machine: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)

    def count(self, status: Status) -> int:
        return sum(notebook.status == status for notebook in self.notebooks)

    @property
    def passed(self) -> bool:
        return not self.interrupted and all(notebook.status == "passed" for notebook in self.notebooks)


def to_json(run: RunResult) -> dict[str, Any]:
    """Return the run as plain JSON data; ``mlsys_grading/report/report.schema.json`` describes it."""
    return {"schema_version": SCHEMA_VERSION, "passed": run.passed, **asdict(run)}


def notebook_from_json(data: Mapping[str, Any]) -> NotebookResult:
    """Read one notebook of a ``report.json``, as :func:`to_json` wrote it.

    Raises:
        KeyError, TypeError: the data is not of this schema.
    """
    rest = dict(data)
    rest["cells"] = tuple(CellTime(**cell) for cell in rest["cells"])
    rest["failure"] = Failure(**rest["failure"]) if rest["failure"] else None
    return NotebookResult(**rest)
