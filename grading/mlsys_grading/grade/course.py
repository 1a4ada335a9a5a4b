"""An nbgrader course folder: its labs, and the submissions to each. Nothing that students wrote is trusted."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nbgrader.utils import parse_utc

from mlsys_grading.examine.files_beside import Beside, read_beside, read_ordinary
from mlsys_grading.examine.notebook import UnreadableError, cells_of, read_cells
from mlsys_grading.grade.bounds import Bounds
from mlsys_grading.grade.modules import modules_of
from mlsys_labkit.errors import LabkitError

_LONGEST_TIMESTAMP = 200


@dataclass(frozen=True)
class LabSource:
    """The instructor's notebook: as JSON, and its cells; and the files beside it, path -> base64."""

    lab: str
    notebook: dict[str, Any]
    cells: Sequence[dict[str, Any]]
    files: Mapping[str, str] = field(default_factory=dict)

    def terms(self, contract: Mapping[str, list[str]] | None, bounds: Bounds) -> dict[str, Any]:
        """Return the arguments of ``GradingJob.of`` that are the same for every submission to the lab."""
        return {"contract": contract, "bounds": bounds, "modules": modules_of(self.cells), "shipped": self.files}


@dataclass(frozen=True)
class HandedIn:
    """One submission's folder, ``submitted/STUDENT/LAB``."""

    student: str
    lab: str
    folder: Path

    def cells(self) -> list[dict[str, Any]]:
        """Read the cells of its notebook. Raises UnreadableError, in one line, for what is no notebook."""
        try:
            self.student.encode()
        except UnicodeEncodeError:
            raise UnreadableError("the folder's name is not UTF-8; rename it") from None
        if "\\" in self.student or not self.student.isprintable():
            raise UnreadableError("the folder's name has a backslash, or a character that cannot be seen; rename it")
        if any(path.is_symlink() for path in (self.folder.parent, self.folder)):
            raise UnreadableError("the folder is a link; a submission is a folder with a notebook in it")
        if not self.folder.is_dir():
            raise UnreadableError(f"{self.lab} is no folder; collect the submission again")
        path = self.folder / f"{self.lab}.ipynb"
        if not os.path.lexists(path):
            others = sorted(other.name for other in self.folder.glob("*.ipynb"))[:3]
            there = f", only {', '.join(others)}; rename the right one" if others else "; ask the student for it"
            raise UnreadableError(f"there is no {path.name}{there}")
        return read_cells(path)

    def beside(self) -> Beside:
        """Read the files that were handed in with the notebook."""
        return read_beside(self.folder)

    def timestamp(self) -> str:
        """Read timestamp.txt, which nbgrader's collecting leaves; "" if there is none.

        Raises UnreadableError for a text that is no time, and for what is no file: it would be no time, and never late.
        """
        path = self.folder / "timestamp.txt"
        if not os.path.lexists(path):
            return ""
        data = read_ordinary(path, _LONGEST_TIMESTAMP)
        if data is None:
            raise UnreadableError("timestamp.txt is no ordinary file; write the time there, or remove it")
        text = data.decode("utf-8", errors="replace").strip()
        try:
            parse_utc(text or "2030-01-31 23:59:00 UTC")
        except (ValueError, OverflowError):
            raise UnreadableError(
                f"timestamp.txt holds {text[:80]!r}, which is no time; write it as 2030-01-31 23:59:00 UTC"
            ) from None
        return text


@dataclass(frozen=True)
class CourseFolder:
    """The folder that holds ``source/``, ``submitted/`` and, after grading, ``gradebook.db``."""

    root: Path

    @classmethod
    def at(cls, root: Path) -> CourseFolder:
        """Return the course folder at ``root``. Raises LabkitError if it is not one."""
        if not (root / "submitted").is_dir():
            raise LabkitError(
                f"{root} is no nbgrader course folder: it has no submitted/STUDENT/LAB/LAB.ipynb; "
                "name the course folder with --course"
            )
        return cls(root)

    def labs(self, wanted: Sequence[str], every: bool) -> list[str]:
        """Return full names of the labs to grade; ``wanted`` are names or their unique beginnings.

        Raises LabkitError for a name that fits no lab or several. With ``every``, all labs with a submission.
        """
        submitted = {path.name for path in self.root.glob("submitted/*/*") if path.is_dir()}
        known = submitted | {path.parent.name for path in self.root.glob("source/*/*.ipynb")}
        if every:
            with_source = sorted(lab for lab in submitted if self._source(lab).is_file())
            if not with_source:
                if others := sorted(lab for lab in submitted if self._others(lab)):
                    raise LabkitError(self._others(others[0]))
                raise LabkitError(
                    f"{self.root}: no submission's lab has a source/LAB/LAB.ipynb; say `labkit build` first"
                )
            return with_source
        return list(dict.fromkeys(self._lab(name, known) for name in wanted))

    def _lab(self, name: str, known: set[str]) -> str:
        found = [lab for lab in sorted(known) if lab == name] or [lab for lab in sorted(known) if lab.startswith(name)]
        if len(found) != 1:
            what = f"{name!r} may be {' or '.join(found)}" if found else f"there is no lab {name!r} in {self.root}"
            raise LabkitError(f"{what}; there are: {', '.join(sorted(known)) or 'none'}")
        return found[0]

    def source(self, lab: str) -> LabSource:
        """Read the instructor's notebook. Raises LabkitError, with the command to run, if there is none."""
        path = self._source(lab)
        if not path.is_file():
            cure = f"say `labkit build {lab}` in the labs' checkout and copy build/source/{lab} here"
            raise LabkitError(self._others(lab) or f"there is no {path}; {cure}")
        data = path.read_bytes()
        try:
            cells = cells_of(data)
            notebook = json.loads(data.decode("utf-8-sig"))
        except UnreadableError as error:
            raise LabkitError(f"{path}: {error}; say `labkit build {lab}` again") from None
        beside = read_beside(path.parent)
        if beside.left_out:
            raise LabkitError(f"{path.parent}: {beside.left_out[0]}; what lies there is laid out for every submission")
        return LabSource(lab, notebook, cells, beside.files)

    def _source(self, lab: str) -> Path:
        return self.root / "source" / lab / f"{lab}.ipynb"

    def _others(self, lab: str) -> str:
        """Advise on an assignment of nbgrader's whose notebooks have names of their own; "" for another."""
        names = sorted(path.name for path in (self.root / "source" / lab).glob("*.ipynb"))
        if not names or f"{lab}.ipynb" in names:
            return ""
        cure = (
            f"rename it, and {names[0]} in each folder of submitted/"
            if len(names) == 1
            else "make an assignment of each, or grade them by nbgrader autograde"
        )
        return f"source/{lab} has {', '.join(names)}, and labkit grades one notebook, {lab}.ipynb; {cure}"

    def handed_in(self, lab: str, students: Sequence[str] = ()) -> list[HandedIn]:
        """List the submissions of one lab by student; only those of ``students``, if any are named.

        Raises LabkitError for a student who has not handed in.
        """
        submitted = self.root / "submitted"
        names = [name for name in os.listdir(submitted) if not name.startswith(".")]
        found = {
            name: HandedIn(name, lab, submitted / name / lab)
            for name in names
            if os.path.lexists(submitted / name / lab)
        }
        if unknown := [student for student in students if student not in found]:
            raise LabkitError(f"{unknown[0]} has not handed in {lab}: there is no submitted/{unknown[0]}/{lab}")
        return [found[student] for student in sorted(students or found)]
