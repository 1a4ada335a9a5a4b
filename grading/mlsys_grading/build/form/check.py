"""Every rule for a lab's form."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from mlsys_grading.build.finding import Finding
from mlsys_grading.build.form import beside, cells, notebook, regions
from mlsys_grading.lab import Lab

RULES: tuple[Callable[[Lab], Iterator[Finding]], ...] = (
    notebook.header, notebook.title, notebook.parameters, notebook.points,
    cells.metadata, cells.kinds, cells.ids, cells.test_names,
    regions.balanced, regions.stub_inside_function, regions.still_parses,
    beside.wrong_answers, beside.coach_notes, beside.loose_files,
)  # fmt: skip


def check_form(lab: Lab) -> Iterator[Finding]:
    """What a lab's form is objected to for; names that must be unique over all labs are ``cells.unique_tasks``'s."""
    for rule in RULES:
        yield from rule(lab)
