"""The file of a lab in the student's package, for ``lk.progress()``: tasks, points, digests of the students' cells."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from typing import TYPE_CHECKING

from mlsys_grading.build.markers import HIDDEN, regions
from mlsys_grading.lab import Lab
from mlsys_labkit._frontends.progress import catalogue

if TYPE_CHECKING:
    from nbformat import NotebookNode

FOLDER = "mlsys_labkit/_frontends/progress/labs"
_HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)
_NUMBERED = re.compile(r"^Task \d+ · ")


def catalogue_file(lab: Lab, student: NotebookNode) -> str:
    """Return the text of a lab's file in ``FOLDER``; ``student`` has the cells of ``lab``, in order."""
    text = [cell.source for cell in student.cells]
    code = {cell.index: catalogue.defined(text[cell.index]) for cell in lab.cells if cell.kind == "code"}
    headings = [_HEADING.findall(text[cell.index]) if cell.kind == "markdown" else [] for cell in lab.cells]
    tasks = []
    for task in lab.tasks:
        at = task.solution.index
        elsewhere = set().union(*(names for index, names in code.items() if index != at))
        above = [heading for found in headings[:at] for heading in found] or [task.name]
        tests = tuple(
            catalogue.Test(
                id=str(student.cells[test.index].id),
                points=test.points,
                digest=catalogue.digest(text[test.index]),
                visible=bool(text[test.index].strip()),
                hidden=any(region.what == HIDDEN for region in regions(test.source)[0]),
            )
            for test in task.tests
        )
        tasks.append(
            catalogue.TaskEntry(
                name=str(student.cells[at].id),
                title=_NUMBERED.sub("", above[-1]),
                stub=catalogue.digest(text[at]),
                defines=tuple(sorted(code[at] - elsewhere)),
                tests=tests,
            )
        )
    title = next((found[0] for found in headings if found), lab.name)
    opening = (text[cell.index] for cell in lab.cells if "%load_ext mlsys_labkit" in cell.source)
    opens = next(map(catalogue.digest, opening), "")
    made = catalogue.LabEntry(lab.name, title, opens, tuple(tasks))
    return json.dumps(asdict(made), indent=1, ensure_ascii=False) + "\n"
