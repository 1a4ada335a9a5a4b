"""A release of a small course, and a look into it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import nbformat

from mlsys_labkit._frontends.cli import main
from tests.grading.course import LAB, Course

SECRETS = ("secret_copy", "secret_input", "secret_before", "self.counts[thing] =", "a fresh tally", "sign_lost")
NOTEBOOK = f"labs/{LAB}/{LAB}.ipynb"
LEAK = "secret_copy = np.array(x, dtype=np.float64, copy=True)\n"
NEXT_LEAK = "assert Tally().see('a') == 1, 'a fresh tally starts from nothing'\n"


def release(course: Course, out: Path, *arguments: str) -> int:
    return main(["release", str(out), "--root", str(course.root), *arguments])


def set_up(course: Course, **values: object) -> None:
    """Write grading/release.toml."""
    lines = [f"{name} = {json.dumps(value)}" for name, value in values.items()]
    (course.root / "grading").mkdir(exist_ok=True)
    (course.root / "grading" / "release.toml").write_text("\n".join(["[release]", *lines]) + "\n")


def files(folder: Path) -> dict[str, bytes]:
    found = (path for path in folder.rglob("*") if path.is_file() and ".git" not in path.parts)
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


def notebook(out: Path) -> nbformat.NotebookNode:
    return nbformat.read(out / NOTEBOOK, as_version=4)


def git(folder: Path, *arguments: str) -> str:
    return subprocess.run(["git", "-C", str(folder), *arguments], check=True, capture_output=True, text=True).stdout


def set_memory(course: Course, mebibytes: int | None) -> None:
    """Write what benchmarks/lab_memory.py writes, which leaves out a lab that failed."""
    (course.root / "binder").mkdir()
    (course.root / "binder" / "lab_memory.toml").write_text(f"{LAB} = {mebibytes}\n" if mebibytes else "# none\n")
