"""The build's findings: a place, the problem, and what to write instead."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mlsys_grading.lab import Cell, Lab

Objection = tuple[Cell | Path, int, str, str]
"""Yielded by a rule for a lab's form: cell or file, line in it (0: all of it), problem, what to write instead."""


@dataclass(frozen=True, order=True)
class BuildFinding:
    """One objection. ``where`` is ``file:line`` relative to the checkout; ``instead`` says what to write."""

    where: str
    rule: str
    problem: str
    instead: str
    warns: bool = False
    """True for a finding with which the lab is built all the same."""

    def __str__(self) -> str:
        said = "warning: " if self.warns else ""
        return f"{self.where}: {said}{self.rule}: {self.problem}; {self.instead}"


def at(lab: Lab, cell: Cell, line: int, rule: str, problem: str, instead: str, *, warns: bool = False) -> BuildFinding:
    """Return a finding in ``cell``; ``line`` counts from 1 within the cell's source."""
    return BuildFinding(lab.where(lab.path, cell.line + max(line, 1) - 1), rule, problem, instead, warns)


def in_file(lab: Lab, path: Path, line: int, rule: str, problem: str, instead: str) -> BuildFinding:
    """Return a finding in a file beside the notebook."""
    return BuildFinding(lab.where(path, line), rule, problem, instead)
