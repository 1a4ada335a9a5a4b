"""All files of the students' repository, in memory, so that all are searched before any is written."""

from __future__ import annotations

import stat
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from mlsys_grading.build.outputs import outputs
from mlsys_grading.lab import Lab
from mlsys_grading.release.git import files_of
from mlsys_grading.release.links import badges
from mlsys_grading.release.manifest import RELEASE, dump_release
from mlsys_grading.release.notebook import released_notebook
from mlsys_grading.release.readme import readme, row_of
from mlsys_grading.release.settings import ReleaseSettings
from mlsys_labkit import __version__
from mlsys_labkit._base.released import Release

_FOLDERS = ("mlsys_labkit/", ".devcontainer/", ".vscode/")
_FILES = ("pyproject.toml", "constraints.txt", "LICENSE", "LICENSE-text", "CITATION.cff")
SOURCES = (*_FOLDERS, *_FILES, "binder", "solutions", "grading/release.toml")  # what a release is made from
_MEMORY = "binder/lab_memory.toml"  # each measured lab's peak memory in MiB, from benchmarks/lab_memory.py
_BINDER_MIB = 2048  # mybinder.org ends a kernel above this
_IGNORED = b".venv/\n__pycache__/\n*.egg-info/\n.ipynb_checkpoints/\n/build/\n.labkit/\n.DS_Store\n/.released.next/\n"


@dataclass(frozen=True)
class File:
    """A file's content, and its executable bit."""

    data: bytes
    runs: bool = False


@dataclass(frozen=True)
class Tree:
    """The files by path, and the release that one of them, ``labs/release.toml``, describes."""

    files: Mapping[str, File]
    release: Release

    def dated(self, date: datetime) -> Tree:
        """Return the same release with another date."""
        release = replace(self.release, date=date)
        return Tree({**self.files, RELEASE: File(dump_release(release))}, release)


def student_tree(root: Path, labs: Sequence[Lab], settings: ReleaseSettings, date: datetime) -> Tree:
    """Make the students' files from a checkout: the same bytes for the same checkout, settings and date."""
    places = {name: root / name for name in files_of(root) if _travels(name)}
    files = {name: File(path.read_bytes(), is_program(path)) for name, path in places.items()}
    measured, project = root / _MEMORY, _toml(root / "pyproject.toml").get("project", {})
    memory, version = _toml(measured) if measured.is_file() else {}, str(project.get("version", __version__))
    rows, marks = [], {}
    for lab in labs:
        path = f"labs/{lab.name}/{lab.name}.ipynb"
        held = memory.get(lab.name)
        links = badges(settings, path, on_binder=held is not None and held <= _BINDER_MIB)
        made = released_notebook(lab, settings, links)
        marks[lab.name] = made.marks
        files |= {name: File(data) for name, data in outputs(lab).items() if not name.startswith("build/")}
        files[path] = File(made.data)
        rows.append(row_of(lab, path, f"{held * 2**20 / 1e9:.1f} GB" if held else "", links))
    files["README.md"] = File(readme(rows, settings, version))
    files[".gitignore"] = File(_IGNORED)
    return Tree(dict(sorted(files.items())), Release(version, date, marks)).dated(date)


def _travels(name: str) -> bool:
    if name.startswith("binder/"):  # without the folders of the Hub and of the images
        return name.count("/") == 1 and name not in ("binder/README.md", _MEMORY)
    return name in _FILES or name.startswith(_FOLDERS)


def is_program(path: Path) -> bool:
    """Return whether there is a file that its owner may execute."""
    return path.is_file() and bool(path.stat().st_mode & stat.S_IXUSR)


def _toml(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text(encoding="utf-8"))
