"""A lab's notebook as it is released: with badges, an install that finds the kit, and a mark in every cell."""

from __future__ import annotations

from dataclasses import dataclass

from mlsys_grading.build.notebook import dumps, student_notebook
from mlsys_grading.lab import Lab
from mlsys_grading.release.chapters import served_chapters
from mlsys_grading.release.settings import ReleaseSettings
from mlsys_labkit._base.released import KEY, mark_of

_KIT = "mlsys-labkit"


@dataclass(frozen=True)
class ReleasedNotebook:
    """The file's bytes, and the marks of its cells by id, in their order."""

    data: bytes
    marks: dict[str, str]


def released_notebook(lab: Lab, settings: ReleaseSettings, badges: str) -> ReleasedNotebook:
    """Make the notebook. Marks are taken before badges and addresses are added: these do not count as changes."""
    notebook = student_notebook(lab)
    marks = {}
    for cell in notebook.cells:
        marks[cell.id] = mark_of(cell)
        if "checksum" not in cell.metadata.get("nbgrader", {}):
            cell.metadata[KEY] = {"mark": marks[cell.id]}
        if cell.cell_type == "markdown":
            cell.source = served_chapters(cell.source, settings.chapters)
    if badges:
        title, _, rest = notebook.cells[0].source.partition("\n")
        notebook.cells[0].source = f"{title}\n\n{badges}\n{rest}"
    if settings.repository:  # Colab installs the released kit, with which these labs were tested
        requirement = f"'{_KIT} @ git+{settings.address}@{settings.branch}'"
        for cell in notebook.cells:
            if "install" in cell.metadata.get("tags", ()):
                cell.source = cell.source.replace(f" {_KIT}", f" {requirement}")
    return ReleasedNotebook(dumps(notebook).encode("utf-8"), marks)
