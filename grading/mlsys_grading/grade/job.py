"""``GradingJob``: one submission, and all that its marks depend on, as plain data that crosses machines as JSON."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import mlsys_grading
import mlsys_labkit
from mlsys_grading.examine.files_beside import Beside
from mlsys_grading.grade.bounds import Bounds
from mlsys_grading.sandbox.limits import SandboxLimits
from mlsys_grading.time_limits import TimeLimits

Cell = Mapping[str, Any]


@dataclass(frozen=True)
class GradingJob:
    """One submission to grade.

    Attributes:
        name: hash of all that the marks depend on.
        source: the instructor's cells, with solutions and hidden tests.
        submission: the student's cells.
        contract: what calls of the reference solution did beside returning plain data; None for that solution itself.
        modules: what the lab imports; they are imported once, before the first submission.
        beside: files that were handed in beside the notebook, path -> base64; ``shipped`` are the lab's own.
        left_out: what of them was not taken, in words.

    Example:
        >>> cells = [{"cell_type": "code", "source": "x = 1", "metadata": {}}]
        >>> needs = {"contract": None, "modules": ("json",), "bounds": Bounds()}
        >>> job = GradingJob.of("lab00_your_machine", "ada", cells, cells, **needs)
        >>> GradingJob.from_json(job.to_json()) == job
        True
    """

    name: str
    lab: str
    student: str
    source: Sequence[Cell]
    submission: Sequence[Cell]
    contract: Mapping[str, list[str]] | None
    modules: tuple[str, ...]
    bounds: Bounds
    beside: Mapping[str, str] = field(default_factory=dict)
    shipped: Mapping[str, str] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        lab: str,
        student: str,
        source: Sequence[Cell],
        submission: Sequence[Cell],
        *,
        contract: Mapping[str, list[str]] | None,
        modules: tuple[str, ...],
        bounds: Bounds,
        beside: Beside | None = None,
        shipped: Mapping[str, str] | None = None,
    ) -> GradingJob:
        """Name the job by its content. The contract follows from the rest, and the student's name changes no mark."""
        beside, shipped, plain = beside or Beside(), shipped or {}, [_plain(cell) for cell in source]
        content = [
            lab,
            plain,
            submission,
            asdict(bounds),
            _code_digest(),
            versions(),
            dict(beside.files),
            dict(shipped),
        ]
        name = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:32]
        # Attachments are part of the job's name, but no worker needs them.
        sent = [{key: cell[key] for key in cell if key != "attachments"} for cell in submission]
        files = beside.files, shipped, beside.left_out
        return cls(name, lab, student, plain, sent, contract, modules, bounds, *files)

    def to_json(self) -> str:
        """Write all fields, without the copy of every cell that ``asdict`` makes."""
        plain = {each.name: getattr(self, each.name) for each in fields(self)}
        return json.dumps(plain | {"bounds": asdict(self.bounds)})

    @classmethod
    def from_json(cls, text: str) -> GradingJob:
        """Read what ``to_json`` wrote."""
        plain = json.loads(text)
        bounds = plain.pop("bounds")
        time_limits, limits = TimeLimits(**bounds.pop("time_limits")), SandboxLimits(**bounds.pop("limits"))
        modules, left_out = tuple(plain.pop("modules")), tuple(plain.pop("left_out"))
        return cls(bounds=Bounds(time_limits, limits, **bounds), modules=modules, left_out=left_out, **plain)


def versions() -> dict[str, str]:
    """Return the versions of the kit, the graders and Python."""
    return {name: version(name) for name in ("mlsys-labkit", "mlsys-grading")} | {"python": platform.python_version()}


def _plain(cell: Cell) -> dict[str, Any]:
    """Leave out outputs and execution counts, which building the same lab again may change."""
    source = cell.get("source", "")
    text = source if isinstance(source, str) else "".join(source)
    return {"cell_type": cell["cell_type"], "source": text, "metadata": cell.get("metadata") or {}}


@cache
def _code_digest() -> str:
    """Hash every file of the kit, and of the graders' packages that influence a mark."""
    kit = Path(mlsys_labkit.__file__).parent
    graders = Path(mlsys_grading.__file__).parent
    rooms = [graders / room for room in ("boundary", "counters", "examine", "fork_server", "gpu", "kernel", "sandbox")]
    digest = hashlib.sha256()
    for root in (kit, *rooms, graders / "processes.py", graders / "result.py", graders / "shell.py"):
        for path in sorted(path for path in (root, *root.rglob("*")) if path.is_file()):
            if "__pycache__" not in path.parts:
                data = path.read_bytes()
                digest.update(f"{path.relative_to(root)}\0{len(data)}\0".encode() + data)
    return digest.hexdigest()
