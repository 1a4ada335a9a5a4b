"""``Result``: what grading one submission came to. Plain data; it crosses machines and years as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

Status = Literal["graded", "infrastructure"]
_FORMAT = "mlsys-grading result 1"


@dataclass(frozen=True)
class CellMark:
    """The mark of one test cell.

    Attributes:
        name: the cell's ``grade_id``.
        points: the points given, of ``max_points``.
        error: the reason for missing points, in one line; empty for a pass.
        kinds: classes of the exception, the most derived first.
        printed: output of student code while the cell ran, bounded.
        seconds: time that the cell took.
        hidden: True if the cell has hidden tests; output of student code in it never reaches feedback.
        claim: True if the points rest on reports of the student's process about itself.
        failed_input: the author's name of the input that failed, such as "an empty list"; empty if there is none.
    """

    name: str
    points: float
    max_points: float
    error: str = ""
    kinds: tuple[str, ...] = ()
    printed: str = ""
    seconds: float = 0.0
    hidden: bool = False
    claim: bool = False
    failed_input: str = ""

    @property
    def passed(self) -> bool:
        """True if the cell ran without an error; it may still give only a part of its points."""
        return not self.error


@dataclass(frozen=True)
class Result:
    """One graded submission.

    Attributes:
        job: hash of all that the marks depend on: submission, source, versions, limits.
        lab, student: names of the lab and of the student.
        marks: one for each test cell of the source, in order.
        failed_cells: name of a student's cell -> its error.
        oddities: irregularities of the submission, such as missing or doubled cells.
        status: "graded", or "infrastructure" when the machine failed and not the student: then ``marks`` is empty,
            nothing is written to the gradebook, and ``why`` is the reason.
        restarts: number of times that the student's process was started again.
        sandbox: True if the student's code was confined.
        versions: versions of the kit, the graders and Python.

    Example:
        >>> mark = CellMark("f_test", 2.0, 2.0)
        >>> result = Result("ab12", "lab00_your_machine", "ada", (mark,))
        >>> result.points, Result.from_json(result.to_json()) == result
        (2.0, True)
    """

    job: str
    lab: str
    student: str
    marks: tuple[CellMark, ...]
    failed_cells: Mapping[str, str] | None = None
    oddities: tuple[str, ...] = ()
    status: Status = "graded"
    why: str = ""
    restarts: int = 0
    sandbox: bool = True
    seconds: float = 0.0
    versions: Mapping[str, str] | None = None

    @property
    def points(self) -> float:
        return sum(mark.points for mark in self.marks)

    @property
    def max_points(self) -> float:
        return sum(mark.max_points for mark in self.marks)

    def to_json(self) -> str:
        return json.dumps({"format": _FORMAT} | asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Result:
        """Read what ``to_json`` wrote; raises ValueError for anything else."""
        plain: dict[str, Any] = json.loads(text)
        if not isinstance(plain, dict) or plain.pop("format", None) != _FORMAT:
            raise ValueError(f"expected {_FORMAT}")
        marks = tuple(CellMark(**mark | {"kinds": tuple(mark["kinds"])}) for mark in plain.pop("marks"))
        return cls(marks=marks, oddities=tuple(plain.pop("oddities")), **plain)
