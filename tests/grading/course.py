"""A tiny checkout to build, prove and grade: a copy of ``fixtures/course`` that a test may break as it likes."""

from __future__ import annotations

from pathlib import Path

from mlsys_grading.build.finding import BuildFinding
from mlsys_grading.build.lint import lint
from mlsys_grading.lab import read_lab

FIXTURE = Path(__file__).parent / "fixtures" / "course"
LAB = "lab90_tiny"
TEST_LINE = "expect_equal(scaled([], 2).size, 0)"  # the one line of scaled_test_empty


class Course:
    """One copy. ``edit`` replaces text that must be there, so that a test cannot pass by missing its target."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @property
    def source(self) -> Path:
        return self.root / "solutions" / LAB / f"{LAB}.py"

    @property
    def wrong(self) -> Path:
        return self.root / "solutions" / LAB / "wrong_answers.py"

    @property
    def notes(self) -> Path:
        return self.root / "mlsys_labkit" / "coach" / "notes" / f"{LAB}.toml"

    @property
    def student(self) -> Path:
        return self.root / "labs" / LAB / f"{LAB}.ipynb"

    @property
    def nbgrader_source(self) -> Path:
        return self.root / "build" / "source" / LAB / f"{LAB}.ipynb"

    def edit(self, path: Path, old: str, new: str) -> int:
        """Replace ``old`` by ``new``; returns the line where ``new`` starts."""
        text = path.read_text(encoding="utf-8")
        assert old in text, f"{old!r} is not in {path.name}"
        path.write_text(text.replace(old, new), encoding="utf-8")
        return text[: text.index(old)].count("\n") + 1

    def files(self) -> dict[str, bytes]:
        """Return every file that a command wrote, by path: all but the sources."""
        known = {path.relative_to(FIXTURE) for path in FIXTURE.rglob("*")}
        found = (path for path in sorted(self.root.rglob("*")) if path.is_file())
        return {str(p.relative_to(self.root)): p.read_bytes() for p in found if p.relative_to(self.root) not in known}

    def findings(self) -> list[BuildFinding]:
        """Return the findings of the build."""
        return lint([read_lab(self.root, LAB)])[LAB]
