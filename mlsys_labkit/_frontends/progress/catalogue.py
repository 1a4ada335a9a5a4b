"""The catalogue of labs: their tasks in order, test cells, points, and digests of what was handed out.

``labs/labNN_topic.json`` is made by ``labkit build`` from the lab's source and travels with the package, so that it is
there, too, when a lab is opened alone on Colab. It contains digests of what students see, and neither texts nor
answers.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from typing import Any

from mlsys_labkit.errors import LabkitError

_DEFINES = re.compile(r"^(?:(?:async[ ]+)?def|class)[ ]+(\w+)|^%%cuda[ ]+(\w+)", re.MULTILINE)
_HIDDEN = re.compile(r"^[^\n]*BEGIN HIDDEN TESTS.*?END HIDDEN TESTS[^\n]*\n?", re.MULTILINE | re.DOTALL)
_NUMBER = re.compile(r"lab\d\d(?=[-_])")


def digest(source: str) -> str:
    """Return a digest of what students see of a cell, 16 hexadecimal digits.

    Spaces at the ends of lines and of the cell do not count, nor hidden tests where they stand, in an author's copy.

    Example:
        >>> digest("x = 1") == digest("x = 1  \\n")
        True
    """
    lines = (line.rstrip() for line in _HIDDEN.sub("", source).strip().splitlines())
    return hashlib.sha256("\n".join(lines).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def defined(source: str) -> set[str]:
    """Return the functions, classes and CUDA kernels that a cell defines at its left edge.

    Example:
        >>> sorted(defined("def f(x):\\n    def inner(): ...\\nclass A: ..."))
        ['A', 'f']
    """
    return {one or two for one, two in _DEFINES.findall(source)}


@dataclass(frozen=True)
class Test:
    """One graded test cell: the digest of its visible part, and whether hidden tests stand in it, too."""

    id: str
    points: float
    digest: str
    visible: bool = True
    hidden: bool = False


@dataclass(frozen=True)
class TaskEntry:
    """One task of a lab. ``stub`` is the digest of its answer's cell as handed out."""

    name: str
    title: str
    stub: str
    defines: tuple[str, ...]
    tests: tuple[Test, ...]

    @property
    def points(self) -> float:
        return sum(test.points for test in self.tests)


@dataclass(frozen=True)
class LabEntry:
    """One lab. ``opens`` is the digest of the cell that loads the kit: it identifies a notebook without cell ids."""

    name: str
    title: str
    opens: str
    tasks: tuple[TaskEntry, ...]

    @cached_property
    def by_id(self) -> Mapping[str, tuple[TaskEntry, Test | None]]:
        """Cell id -> its task, and its test where it is one."""
        answers: dict[str, tuple[TaskEntry, Test | None]] = {task.name: (task, None) for task in self.tasks}
        return answers | {test.id: (task, test) for task in self.tasks for test in task.tests}

    @cached_property
    def by_digest(self) -> Mapping[str, tuple[TaskEntry, Test]]:
        return {test.digest: (task, test) for task in self.tasks for test in task.tests}

    @cached_property
    def by_name(self) -> Mapping[str, TaskEntry]:
        """Map each name that an answer defines to its task."""
        return {name: task for task in self.tasks for name in task.defines}


@cache
def labs() -> Mapping[str, LabEntry]:
    """Return every lab by name, in order."""
    folder = files(__package__) / "labs"
    found = sorted((file for file in folder.iterdir() if file.name.endswith(".json")), key=lambda file: file.name)
    return {lab.name: lab for lab in (_lab(json.loads(file.read_text("utf-8"))) for file in found)}


def lab(name: str) -> LabEntry:
    """Return the lab called ``name``, or by a unique beginning such as ``lab01``. Raises LabkitError for any other.

    Example:
        >>> lab("lab01").tasks[0].title
        'From an index to an address'
    """
    chosen = [each for each in labs().values() if name and each.name.startswith(name)]
    exact = [each for each in chosen if each.name == name]
    if len(exact or chosen) != 1:
        raise LabkitError(f"there is no lab {name!r}; the labs are: {', '.join(labs())}")
    return (exact or chosen)[0]


def lab_of(cell_id: str, source_digest: str) -> LabEntry | None:
    """Return the lab that a cell belongs to, by its id or its text; None if neither is known."""
    if number := _NUMBER.match(cell_id):  # such as lab01-003 or lab01_imports
        numbered = [each for each in labs().values() if each.name.startswith(number[0] + "_")]
        if len(numbered) == 1:
            return numbered[0]
    for each in labs().values():
        if cell_id in each.by_id or source_digest in each.by_digest or source_digest == each.opens:
            return each
    return None


def _lab(found: Mapping[str, Any]) -> LabEntry:
    tasks = tuple(
        TaskEntry(**{**task, "defines": tuple(task["defines"]), "tests": tuple(Test(**test) for test in task["tests"])})
        for task in found["tasks"]
    )
    return LabEntry(found["name"], found["title"], found["opens"], tasks)
