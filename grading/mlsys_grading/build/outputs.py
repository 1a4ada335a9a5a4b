"""The files that a lab's source makes, and how they compare with what is on disk."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from mlsys_grading.build.catalogue import FOLDER, catalogue_file
from mlsys_grading.build.notebook import dumps, source_notebook, student_notebook
from mlsys_grading.files import write_if_changed
from mlsys_grading.lab import Lab, lab_names

Made = Mapping[str, bytes]  # path relative to the checkout -> content


def outputs(lab: Lab) -> Made:
    """Return every file that ``labkit build`` writes for one lab.

    ``labs/`` is for students, ``build/source/`` for nbgrader; a checkout that holds the kit gets the kit's catalogue.
    """
    student = student_notebook(lab)
    made: dict[str, bytes] = {}
    if (lab.root / FOLDER).is_dir():
        made[f"{FOLDER}/{lab.name}.json"] = catalogue_file(lab, student).encode("utf-8")
    for folder, notebook in (("labs", student), ("build/source", source_notebook(lab))):
        made[f"{folder}/{lab.name}/{lab.name}.ipynb"] = dumps(notebook).encode("utf-8")
        for file in lab.data_files():
            made[f"{folder}/{lab.name}/{file.relative_to(lab.folder).as_posix()}"] = file.read_bytes()
    return made


def write(root: Path, made: Made) -> list[Path]:
    """Write the files that differ, and return them."""
    return [root / name for name, content in made.items() if write_if_changed(root / name, content)]


def stale(root: Path, made: Made) -> list[str]:
    """Return the committed files (all but those in ``build/``) that are missing or not as the source makes them."""
    return [name for name in made if not name.startswith("build/") and not _is_same(root / name, made[name])]


def strays(root: Path, labs: Sequence[Lab]) -> Iterator[str]:
    """Yield what no lab makes any more: folders in ``labs/``, files of the kit, files that left a lab's ``data/``."""
    known = set(lab_names(root))
    for file in sorted((root / FOLDER).glob("*.json")):
        if file.stem not in known:
            yield f"{FOLDER}/{file.name}"
    folder = root / "labs"
    if not folder.is_dir():
        return
    for entry in sorted(folder.iterdir()):
        if entry.is_dir() and entry.name not in known and not entry.name.startswith("."):
            yield f"labs/{entry.name}"
    for lab in labs:
        mine = {file.relative_to(lab.folder) for file in lab.data_files()}
        data = folder / lab.name / "data"
        for file in sorted(data.rglob("*")) if data.is_dir() else ():
            if file.is_file() and file.relative_to(folder / lab.name) not in mine:
                yield file.relative_to(root).as_posix()


def worked_in(root: Path, made: Made) -> list[str]:
    """Return the notebooks in ``labs/`` with outputs or edited cells: a person's work, perhaps the only copy."""
    notebooks = (name for name in made if name.startswith("labs/") and name.endswith(".ipynb"))
    there = (name for name in notebooks if (root / name).is_file())
    return [name for name in there if not _is_same(root / name, made[name]) and _has_work(root / name)]


def _is_same(path: Path, content: bytes) -> bool:
    return path.is_file() and path.read_bytes() == content


def _has_work(path: Path) -> bool:
    import nbformat
    from nbgrader.utils import compute_checksum, is_solution

    try:
        notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    except Exception:  # not a notebook that the build wrote
        return path.stat().st_size > 0
    for cell in notebook.cells:
        if cell.cell_type == "code" and (cell.outputs or cell.execution_count):
            return True
        if is_solution(cell) and compute_checksum(cell) != cell.metadata.nbgrader.get("checksum"):
            return True
    return False
