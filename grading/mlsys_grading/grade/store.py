"""Results of earlier gradings, as JSON files beside the gradebook: each is whole or not there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlsys_grading.files import write_atomic, write_if_changed
from mlsys_grading.result import Result

FOLDER = ".mlsys-grading"


@dataclass(frozen=True)
class Store:
    """The folder ``.mlsys-grading`` of a course.

    ``results/LAB/STUDENT.json`` is the last Result of a submission; ``written/LAB/STUDENT.json`` records that it is in
    the gradebook, the graded notebook and the feedback; ``contracts/LAB.json`` is the reference solution's contract. A
    file that cannot be read counts as missing, and its work is done again.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     Store(Path(folder)).put(Result("ab12", "lab00_your_machine", "ada", ()))
        ...     Store(Path(folder)).result("lab00_your_machine", "ada").job
        'ab12'
    """

    course: Path

    def result(self, lab: str, student: str) -> Result | None:
        try:
            return Result.from_json(self._path("results", lab, student).read_text(encoding="utf-8"))
        except (OSError, ValueError, TypeError, KeyError):
            return None

    def put(self, result: Result) -> None:
        """Store a result, in place of the one before."""
        write_atomic(self._path("results", result.lab, result.student), result.to_json())

    def is_written(self, result: Result, timestamp: str) -> bool:
        """Return True if a result, of a submission of that time, has been written out to the last file."""
        return all(_read(path) == json.loads(note) for path, note in self.written_note(result, timestamp).items())

    def written_note(self, result: Result, timestamp: str) -> dict[Path, str]:
        """Return path -> content of the file that records that a result has been written out."""
        note = json.dumps({"job": result.job, "timestamp": timestamp})
        return {self._path("written", result.lab, result.student): note}

    def contract(self, lab: str, job: str) -> dict[str, list[str]] | None:
        """Return the contract stored for ``job``; None if another job was the last."""
        found = _read(self._path("contracts", lab))
        if not isinstance(found, dict) or found.get("job") != job or not isinstance(found.get("contract"), dict):
            return None
        contract: dict[str, list[str]] = found["contract"]
        return contract

    def put_contract(self, lab: str, job: str, contract: Mapping[str, list[str]]) -> None:
        """Store a contract as readable JSON, because instructors may want to see what honest work may do."""
        plain = {"job": job, "contract": dict(contract)}
        write_if_changed(self._path("contracts", lab), json.dumps(plain, indent=1, sort_keys=True))

    def _path(self, *names: str) -> Path:
        *folders, last = names
        return Path(self.course, FOLDER, *folders, f"{last}.json")


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
