"""The corpus as one class, graded by ``labkit grade``: a course folder, the command, and its results."""

from __future__ import annotations

import csv
import hashlib
import html
import json
import os
import re
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nbgrader.api import Gradebook
from nbgrader.plugins import CsvExportPlugin

from tests.grading.corpus import kernels
from tests.grading.corpus.folders import Handed
from tests.grading.corpus.grader import LEFT_RUNNING
from tests.grading.corpus.judge import Bait
from tests.grading.corpus.kernels import Answered
from tests.grading.corpus.submission import LAB, Submission, source
from tests.grading.gradebook_helpers import rows

ROOT = Path(__file__).resolve().parents[3]
OUTPUTS = ("gradebook.db", "autograded", "feedback", "grades", ".mlsys-grading")

# A dozen submissions use all that the limits allow, so these are small.
LIMITS = ("memory_gib=1.5", "scratch_mib=256", "call_seconds=6", "cell_seconds=12", "wall_seconds=180")

Entry = Submission | Handed | Answered


def student(entry: Entry) -> str:
    """Return the folder name of the student who handed in the submission."""
    return entry.student if isinstance(entry, Handed) else re.sub(r"[^a-z0-9]+", "-", entry.name.lower()).strip("-")


@dataclass(frozen=True)
class Marks:
    """The outcome of one run of ``labkit grade``: marks, files, exit code and output.

    Attributes:
        cells: student -> names of the cells that earned their points.
        totals: student -> points, as nbgrader reads them; ``exported`` are those of nbgrader's CSV.
        apart: student -> the reason why no mark was written.
        said: the output of the command.
        changed: files of the course that differ from before, apart from the command's own outputs.
        left: processes that outlived the command.
    """

    cells: dict[str, frozenset[str]]
    totals: dict[str, float]
    exported: dict[str, float]
    apart: dict[str, str]
    said: str
    code: int
    changed: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)


class Class:
    """One course folder with the submissions of all ``entries``, and of grace, whom some of them attack."""

    def __init__(self, bait: Bait, entries: Sequence[Entry]) -> None:
        self.bait, self.root, self.entries = bait, bait.folder, entries
        (self.root / "gradebook.db").unlink()
        folder = self.root / "source" / LAB
        folder.mkdir(parents=True)
        (folder / f"{LAB}.ipynb").write_text(json.dumps(source()))
        for entry in entries:
            place = self.root / "submitted" / student(entry) / LAB
            if isinstance(entry, Handed):
                entry.make(self.root, place)
                continue
            place.mkdir(parents=True)
            (place / f"{LAB}.ipynb").write_bytes(entry.file(bait.words))

    def grade(self, *options: str, jobs: int = 3) -> Marks:
        """Grade the class once, and read all that the command wrote, and what it should not have written."""
        limits = (word for limit in LIMITS for word in ("--limit", limit))
        return grade(self.root, list(map(student, self.entries)), "--jobs", str(jobs), *limits, *options)

    def written(self) -> dict[str, list[str]]:
        """Return student -> that student's files below ``autograded`` and ``feedback``, by the first folder's name."""
        found: dict[str, list[str]] = {}
        for top in ("autograded", "feedback"):
            for path in (each for each in (self.root / top).rglob("*") if not each.is_dir() or each.is_symlink()):
                owner = path.relative_to(self.root / top).parts[0]
                found.setdefault(owner, []).append(str(path.relative_to(self.root)))
        return {owner: sorted(paths) for owner, paths in found.items()}

    def notebook(self, name: str) -> dict[str, Any]:
        """Return a student's graded notebook."""
        found: dict[str, Any] = json.loads((self.root / "autograded" / name / LAB / f"{LAB}.ipynb").read_bytes())
        return found

    def page(self, name: str) -> str:
        """Return a student's page without its head."""
        page = (self.root / "feedback" / name / LAB / f"{LAB}.html").read_text(encoding="utf-8")
        return page.partition("<body")[2]

    def feedback(self, name: str) -> str:
        """Return the text of a student's page, as a browser shows it."""
        return html.unescape(re.sub(r"<[^>]*>", "", self.page(name)))

    def rows(self, name: str) -> list[tuple[Any, ...]]:
        """Return all rows of the gradebook about a student, without the ids."""
        everything = rows(self.root / "gradebook.db")
        return [
            row
            for table in ("submissions", "penalties", "grades", "comments")
            for row in everything[table]
            if row[0] == name
        ]


def real(root: Path, entries: Sequence[Answered]) -> Path:
    """Write a course folder of the real labs with the submissions of ``entries``."""
    for entry in entries:
        folder = root / "source" / entry.lab
        if not folder.exists():
            folder.mkdir(parents=True)
            (folder / f"{entry.lab}.ipynb").write_text(json.dumps(kernels.source(entry.lab)))
        place = root / "submitted" / student(entry) / entry.lab
        place.mkdir(parents=True)
        (place / f"{entry.lab}.ipynb").write_bytes(entry.file())
    return root


def grade(root: Path, names: Sequence[str], *options: str) -> Marks:
    """Run ``labkit grade --all``; ``Marks.apart`` has the reasons of those of ``names`` who got no mark."""
    before = tree(root)
    command = [sys.executable, "-m", "tests.grading.corpus.grader", "grade", "--all", "--course", str(root), *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    said, errors = done.stdout.decode(), done.stderr.decode()
    assert done.returncode in (0, 1), said + errors
    assert "Traceback" not in errors, said + errors
    after = tree(root)
    changed = sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))
    return Marks(
        cells=_passed(root),
        totals=_totals(root),
        exported=_exported(root),
        apart={who: why for who in names for why in _apart(said, who)},
        said=said + errors,
        code=done.returncode,
        changed=[path for path in changed if Path(path).parts[0] not in OUTPUTS],
        left=[line for line in errors.splitlines() if line.startswith(LEFT_RUNNING)],
    )


def tree(root: Path) -> dict[str, tuple[Any, ...]]:
    """Return every name below ``root`` with its kind, rights, times and content."""
    return dict(_walk(root, root))


def _walk(folder: Path, root: Path) -> Iterator[tuple[str, tuple[Any, ...]]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            found, path = entry.stat(follow_symlinks=False), Path(entry.path)
            held: object = None
            if entry.is_symlink():
                held = os.readlink(path)
            elif stat.S_ISREG(found.st_mode):
                held = hashlib.sha256(path.read_bytes()).hexdigest() if found.st_size < 1 << 28 else found.st_size
            modified = None if stat.S_ISDIR(found.st_mode) else found.st_mtime_ns
            yield str(path.relative_to(root)), (found.st_mode, found.st_uid, modified, held)
            if entry.is_dir(follow_symlinks=False) and str(path.relative_to(root)) not in OUTPUTS:
                yield from _walk(path, root)


def _apart(said: str, who: str) -> list[str]:
    """Return the summary's reasons for giving one student no mark; unprintable characters of a name are escaped."""
    shown = "".join(each if each.isprintable() else each.encode("unicode_escape", "replace").decode() for each in who)
    return re.findall(rf"^  {re.escape(shown)}: \w+, no mark was written: (.*)$", said, re.MULTILINE)


def _passed(root: Path) -> dict[str, frozenset[str]]:
    """Return student -> cells with full marks, from the database alone. No cell gives part of its points."""
    query = """
        SELECT submitted_assignment.student_id, base_cell.name, grade.auto_score, grade_cells.max_score FROM grade
        JOIN base_cell ON grade.cell_id = base_cell.id JOIN grade_cells ON grade_cells.id = base_cell.id
        JOIN submitted_notebook ON grade.notebook_id = submitted_notebook.id
        JOIN submitted_assignment ON submitted_notebook.assignment_id = submitted_assignment.id
    """
    connection = sqlite3.connect(root / "gradebook.db")
    try:
        found: dict[str, set[str]] = {}
        for who, cell, score, most in connection.execute(query):
            assert score in (0, most), (who, cell, score)
            found.setdefault(who, set()).update([cell] if score else [])
    finally:
        connection.close()
    return {who: frozenset(cells) for who, cells in found.items()}


def _totals(root: Path) -> dict[str, float]:
    with Gradebook(f"sqlite:///{root / 'gradebook.db'}") as book:
        return {each.id: each.score for each in book.students}


def _exported(root: Path) -> dict[str, float]:
    path = root / "gradebook.db"
    to = root.parent / "grades.csv"
    with Gradebook(f"sqlite:///{path}") as book:
        CsvExportPlugin(to=str(to)).export(book)  # what `nbgrader export` runs
    with to.open(newline="") as file:
        told = list(csv.DictReader(file))
    to.unlink()
    found: dict[str, float] = {}
    for row in told:
        found[row["student_id"]] = found.get(row["student_id"], 0.0) + float(row["score"])
    return found
