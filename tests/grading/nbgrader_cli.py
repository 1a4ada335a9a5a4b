"""The real ``nbgrader`` command in a course folder of its own, with the configuration that instructors use."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat

CONFIG = Path(__file__).resolve().parents[2] / "grading" / "nbgrader_config.py"


class NbgraderCourse:
    """One nbgrader course folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(parents=True)
        shutil.copy(CONFIG, root)

    def run(self, *arguments: str) -> None:
        """Run one verb; a failure shows what nbgrader said."""
        bin_folder = Path(sys.executable).parent
        # nbgrader starts alembic by name; a home of its own keeps the developer's settings out.
        environment = {**os.environ, "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}", "HOME": str(self.root)}
        done = subprocess.run(
            [str(bin_folder / "nbgrader"), *arguments], cwd=self.root, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr[-3000:]

    def generate(self, source: Path, lab: str) -> Any:
        """Release ``source/lab``; returns the notebook that students would get."""
        shutil.copytree(source / lab, self.root / "source" / lab)
        self.run("generate_assignment", lab)
        return nbformat.read(self.root / "release" / lab / f"{lab}.ipynb", as_version=4)

    def submit(self, student: str, lab: str, notebook: Any) -> None:
        """Hand in ``notebook`` with the data files that were released."""
        folder = Path(shutil.copytree(self.root / "release" / lab, self.root / "submitted" / student / lab))
        nbformat.write(notebook, folder / f"{lab}.ipynb")

    def scores(self, lab: str) -> dict[str, dict[str, float]]:
        """Autograde all submissions; marks by student and grade id, as the gradebook has them."""
        self.run("autograde", lab)
        query = """
            SELECT submitted_assignment.student_id, base_cell.name, grade.auto_score FROM grade
            JOIN base_cell ON grade.cell_id = base_cell.id
            JOIN submitted_notebook ON grade.notebook_id = submitted_notebook.id
            JOIN submitted_assignment ON submitted_notebook.assignment_id = submitted_assignment.id
        """
        found: dict[str, dict[str, float]] = {}
        connection = sqlite3.connect(self.root / "gradebook.db")
        try:
            for student, cell, score in connection.execute(query):
                found.setdefault(student, {})[cell] = score
        finally:
            connection.close()
        return found

    def feedback(self, student: str, lab: str) -> str:
        """Return the feedback page of one student, generated if it is missing."""
        if not (self.root / "feedback" / student / lab).exists():
            self.run("generate_feedback", lab, "--student", student)
        return (self.root / "feedback" / student / lab / f"{lab}.html").read_text(encoding="utf-8")
