"""``Submission``: a student's notebook, given by the few lines in which it differs, and the marks that it deserves."""

from __future__ import annotations

import copy
import json
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

from mlsys_grading.build.notebook import source_notebook, student_notebook
from mlsys_grading.lab import Lab, read_lab

LAB = "lab91_corpus"
COURSE = Path(__file__).parent / "course"

Kind = Literal["honest", "accident", "attack"]
Notebook = dict[str, Any]


@dataclass(frozen=True)
class Submission:
    """One submission.

    Attributes:
        why: in one sentence, why it deserves what it does.
        but: names of test cells whose outcome differs from that of where it started: lost by a solved notebook,
            earned by an unsolved one.
        claimed: names of test cells tagged ``claim`` that it passes undeservedly: they rest on what the student's
            process says of itself, and no witness outside it is known.
        solved: whether it starts from the lab's own solutions, or from the stubs that students get.
        cells: name of a solution cell -> its new source.
        own: further code cells, at the front of the notebook.
        edit: changes the notebook as nbformat has it.
        raw: makes the file's bytes of the notebook's; None for JSON.
        apart: a part of what the instructor is told of a file that is no notebook; such a file gets no marks at all.
        slow: ends by waiting for a time-out, or takes seconds of processor time.
    """

    name: str
    kind: Kind
    why: str
    but: tuple[str, ...] = ()
    claimed: tuple[str, ...] = ()
    solved: bool = True
    cells: Mapping[str, str] = field(default_factory=dict)
    own: tuple[str, ...] = ()
    edit: Callable[[Notebook], object] | None = None
    raw: Callable[[bytes], bytes] | None = None
    apart: str = ""
    slow: bool = False

    @property
    def passes(self) -> frozenset[str]:
        """Names of the test cells that the submission deserves to pass."""
        return frozenset(points()) ^ frozenset(self.but) if self.solved else frozenset(self.but)

    @property
    def expected(self) -> frozenset[str]:
        """Names of the test cells that the submission does pass: deserved ones, and claims that cannot be checked."""
        return self.passes | frozenset(self.claimed)

    @property
    def deserved(self) -> float:
        return sum(points()[name] for name in self.passes)

    def file(self, words: Mapping[str, str] | None = None) -> bytes:
        """Return the bytes of the notebook file. ``words`` maps each ``<KEY>`` in the source to its text."""
        notebook = copy.deepcopy(_solved() if self.solved else _unsolved())
        by_name = {cell["metadata"].get("nbgrader", {}).get("grade_id"): cell for cell in notebook["cells"]}
        for name, source in self.cells.items():
            by_name[name]["source"] = textwrap.dedent(source).strip("\n")
        notebook["cells"][:0] = [code_cell(textwrap.dedent(source).strip("\n")) for source in self.own]
        for cell in notebook["cells"]:
            for key, word in (words or {}).items():
                cell["source"] = cell["source"].replace(f"<{key}>", word)
        if self.edit:
            self.edit(notebook)
        data = json.dumps(notebook).encode()
        return self.raw(data) if self.raw else data


def code_cell(source: str, **nbgrader: Any) -> dict[str, Any]:
    """Build a code cell as nbformat has it; with ``nbgrader``, one with nbgrader's metadata."""
    metadata = {"nbgrader": {"schema_version": 3, **nbgrader}} if nbgrader else {}
    return {"cell_type": "code", "metadata": metadata, "source": source, "outputs": [], "execution_count": None}


@cache
def lab() -> Lab:
    return read_lab(COURSE, LAB)


@cache
def points() -> dict[str, float]:
    """Return the points of each test cell, by name."""
    return {cell.grade_id: cell.points for cell in lab().cells if cell.is_test}


@cache
def claims() -> frozenset[str]:
    """Return the names of the test cells that are tagged ``claim``."""
    return frozenset(cell.grade_id for cell in lab().cells if cell.is_test and "claim" in cell.tags)


def source() -> Notebook:
    """Return the instructor's notebook."""
    return _solved()


@cache
def _solved() -> Notebook:
    return json.loads(json.dumps(source_notebook(lab())))


@cache
def _unsolved() -> Notebook:
    return json.loads(json.dumps(student_notebook(lab())))
