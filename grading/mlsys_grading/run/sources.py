"""The notebooks that a run executes: the labs' solutions, or the notebooks of a folder."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from mlsys_grading.build.notebook import dumps, source_notebook
from mlsys_grading.files import write_atomic
from mlsys_grading.lab import Lab
from mlsys_labkit.errors import LabkitError


@dataclass(frozen=True)
class NotebookSource:
    """A notebook to execute. ``digest`` changes with anything that could change its result; ``cwd`` is its folder."""

    name: str
    title: str
    notebook: Path
    cwd: Path
    digest: str
    code_cells: int


def from_labs(labs: Sequence[Lab], scratch: Path) -> list[NotebookSource]:
    """Write the labs' solutions as notebooks under ``scratch``, each in its own folder beside the lab's data."""
    sources = []
    for lab in labs:
        folder = scratch / lab.name
        folder.mkdir()
        notebook = folder / f"{lab.name}.ipynb"
        write_atomic(notebook, dumps(source_notebook(lab)))
        lab.copy_data(folder)
        digest = _digest([notebook.read_bytes(), *(file.read_bytes() for file in lab.data_files())])
        sources.append(_source(lab.name, notebook, folder, digest))
    return sources


def from_folder(folder: Path, wanted: Sequence[str]) -> list[NotebookSource]:
    """Return the notebooks of ``folder`` and its immediate subfolders; each runs in its own folder.

    Raises:
        LabkitError: no such folder, no notebook in it, an unknown name, or two notebooks of one name.
    """
    if not folder.is_dir():
        raise LabkitError(f"--notebooks {folder}: no such folder; name one that holds .ipynb files")
    paths: dict[str, Path] = {}
    for path in sorted([*folder.glob("*.ipynb"), *folder.glob("[!.]*/*.ipynb")]):
        if not path.is_file():
            continue
        if path.stem in paths:
            raise LabkitError(
                f"{paths[path.stem]} and {path} have one name, and a report has one page a name; rename one"
            )
        paths[path.stem] = path
    if not paths:
        raise LabkitError(f"--notebooks {folder}: no .ipynb files in it or one folder below; name another folder")
    if unknown := sorted(set(wanted) - set(paths)):
        raise LabkitError(f"there is no notebook {unknown[0]!r} in {folder}; there are: {', '.join(paths)}")
    chosen = [paths[name] for name in wanted or paths]
    return [_source(path.stem, path.resolve(), path.resolve().parent, _digest([path.read_bytes()])) for path in chosen]


def kit_digest() -> str:
    """Return a digest of all files of the installed kit: a lab that passed with other code has to run again."""
    spec = find_spec("mlsys_labkit")
    roots = [Path(root) for root in (spec.submodule_search_locations or [])] if spec else []
    files = sorted(
        file for root in roots for file in root.rglob("*") if file.is_file() and "__pycache__" not in file.parts
    )
    return _digest([part for file in files for part in (file.name.encode(), file.read_bytes())])


def _source(name: str, notebook: Path, cwd: Path, digest: str) -> NotebookSource:
    """Describe a notebook; one that is no JSON becomes a source too, for its worker to report."""
    try:
        cells = json.loads(notebook.read_bytes())["cells"]
        code_cells = sum(cell["cell_type"] == "code" and bool("".join(cell["source"]).strip()) for cell in cells)
        title = next(filter(None, map(_heading, cells)), name)
    except (ValueError, KeyError, TypeError):
        code_cells, title = 0, name
    return NotebookSource(name, title, notebook, cwd, digest, code_cells)


def _heading(cell: dict[str, object]) -> str:
    source = cell["source"]
    text = source if isinstance(source, str) else "".join(source)  # type: ignore[arg-type]
    lines = text.splitlines() if cell["cell_type"] == "markdown" else []
    return next((line[2:].strip().replace("*", "").replace("`", "") for line in lines if line.startswith("# ")), "")


def _digest(parts: Sequence[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()
