"""Every rule for a lab's form, by the name that its findings carry."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from mlsys_grading.build.finding import BuildFinding, Objection, at, in_file
from mlsys_grading.build.form import cells, files_beside, notebook, regions
from mlsys_grading.lab import Cell, Lab

RULES: Mapping[Callable[[Lab], Iterator[Objection]], str] = {
    notebook.header: "header",
    notebook.title: "title",
    notebook.parameters: "parameters",
    notebook.points: "points",
    cells.metadata: "metadata",
    cells.kinds: "kind",
    cells.ids: "grade id",
    cells.test_names: "test name",
    regions.balanced: "marker",
    regions.stub_inside_function: "stub",
    regions.still_parses: "syntax",
    files_beside.wrong_answers: "wrong answers",
    files_beside.coach_notes: "coach",
    files_beside.loose_files: "files",
}


def check_form(lab: Lab) -> Iterator[BuildFinding]:
    """Apply every rule to one lab; ``cells.unique_tasks`` compares the names of several."""
    for rule, name in RULES.items():
        for place, line, problem, instead in rule(lab):
            if isinstance(place, Cell):
                yield at(lab, place, line, name, problem, instead)
            else:
                yield in_file(lab, place, line, name, problem, instead)
