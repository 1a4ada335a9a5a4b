"""The files of one submission in a course folder, at nbgrader's places."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mlsys_labkit.errors import LabkitError


@dataclass(frozen=True)
class SubmissionPaths:
    """Paths by student and lab.

    Attributes:
        submitted: the folder that was handed in.
        notebook: the graded notebook, which formgrader shows.
        page: the feedback, which ``nbgrader release_feedback`` hands out.
    """

    submitted: Path
    notebook: Path
    page: Path

    @classmethod
    def of(cls, course: Path, student: str, lab: str) -> SubmissionPaths:
        """Return the paths; raises LabkitError for a name that leads elsewhere."""
        for name in (student, lab):
            if name in ("", ".", "..") or set(name) & {"/", "\\"} or not name.isprintable():
                raise LabkitError(
                    f"{name!a} is no name for a folder; rename the submission's folder and grade it again"
                )
        folders = [course / step / student / lab for step in ("submitted", "autograded", "feedback")]
        return cls(folders[0], folders[1] / f"{lab}.ipynb", folders[2] / f"{lab}.html")
