"""Tiny notebooks for the tests of ``labkit run``, and the command run as a user runs it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat


def write_notebook(folder: Path, name: str, *cells: str, kernel: str = "python3", parameters: bool = True) -> Path:
    """Write ``cells`` as code cells after a title and, if ``parameters``, a parameters cell."""
    notebook = nbformat.v4.new_notebook(
        metadata={"kernelspec": {"name": kernel, "display_name": kernel, "language": "python"}},
        cells=[nbformat.v4.new_markdown_cell(f"# The lab {name}")],
    )
    if parameters:
        notebook.cells.append(nbformat.v4.new_code_cell("smoke = False\nseed = 0", metadata={"tags": ["parameters"]}))
    for number, source in enumerate(cells):
        notebook.cells.append(nbformat.v4.new_code_cell(source, metadata=graded(f"{name}_{number}")))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.ipynb"
    nbformat.write(notebook, path)
    return path


def graded(grade_id: str) -> dict[str, object]:
    return {"nbgrader": {"grade_id": grade_id, "grade": True, "points": 3, "locked": True, "solution": False}}


def labkit() -> str:
    beside = Path(sys.executable).with_name("labkit")
    return str(beside) if beside.exists() else str(shutil.which("labkit"))


def run_labkit(*arguments: object, cwd: Path, timeout: float = 280) -> subprocess.CompletedProcess[str]:
    """Run ``labkit run ARGUMENTS --no-roofline`` in ``cwd``."""
    command = [labkit(), "run", *map(str, arguments), "--no-roofline"]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=timeout, env=dict(os.environ))


def marked_processes(mark: str) -> list[int]:
    """Return the processes, except zombies, with ``mark`` in their environment, whoever their parent is."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            if state != "Z" and mark.encode() in (entry / "environ").read_bytes() and int(entry.name) != os.getpid():
                found.append(int(entry.name))
        except OSError:
            continue
    return found
