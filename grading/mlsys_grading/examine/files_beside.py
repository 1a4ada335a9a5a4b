"""Files beside a notebook: a student's own modules, and a lab's data. They lie in the folder in which the cells run.

As nbgrader has it: what was handed in is there, and what the lab itself ships lies over it. Beyond it: nothing that a
folder may hold is followed, waited for or read without end; and the examiner sees the lab's files alone.
"""

from __future__ import annotations

import base64
import contextlib
import fnmatch
import itertools
import os
import stat
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from mlsys_grading.examine.plan import ExaminerCell, StudentCell, SubmissionPlan
from mlsys_grading.scratch import scratch_folder

MOST_BYTES = 16 << 20
MOST_NAMES = 500
_NAME = "files of the submission"
# The patterns that nbgrader ignores, and the files that nbgrader writes.
_IGNORED = ("*.ipynb", ".*", "*.pyc", "__pycache__", "timestamp.txt", "submission_secret.txt")


@dataclass(frozen=True)
class Beside:
    """Path below the folder -> content in base64, as JSON needs it; and a description of the files left out."""

    files: Mapping[str, str] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()


def read_beside(folder: Path, most_bytes: int = MOST_BYTES) -> Beside:
    """Read the ordinary files below ``folder``; leave out links, pipes, devices, and what is too much.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as name:
        ...     _ = Path(name, "helper.py").write_text("x = 1")
        ...     Path(name, "link.py").symlink_to("/etc/passwd")
        ...     read_beside(Path(name))
        Beside(files={'helper.py': 'eCA9IDE='}, left_out=('link.py is no ordinary file',))
    """
    files: dict[str, str] = {}
    left_out: list[str] = []
    for at, path in enumerate(_below(folder)):
        name = str(path.relative_to(folder))
        if at == MOST_NAMES:
            left_out.append(f"more than {MOST_NAMES} files and folders")
            break
        if not name.isprintable():  # not printable, or not valid UTF-8
            left_out.append(f"{name!a} is no name for a file")
        elif os.path.isdir(path) and not os.path.islink(path):
            continue
        elif (data := read_ordinary(path, most_bytes)) is None:
            left_out.append(f"{name} is no ordinary file")
        elif len(data) > most_bytes:
            left_out.append(f"{name} is too large")
        else:
            most_bytes -= len(data)
            files[name] = base64.b64encode(data).decode()
    return Beside(files, tuple(left_out))


def with_files(plan: SubmissionPlan, submitted: Mapping[str, str], shipped: Mapping[str, str]) -> SubmissionPlan:
    """Return the plan with a first cell in each process that lays out files: ``shipped`` are the lab's own."""
    student, examiner = plan.student, plan.examiner
    if files := {**submitted, **shipped}:
        student = (StudentCell(0, _NAME, _cell(files), -1), *student)
    if shipped:
        examiner = (ExaminerCell(0, "locked", _NAME, _cell(shipped)), *examiner)
    return replace(plan, student=student, examiner=examiner)


def lay_out(files: Mapping[str, str]) -> None:
    """Write files into the working folder, and let modules be imported from there, as a notebook does.

    Without a sandbox the working folder is the grader's own: then they go to one that is swept later.
    """
    if os.getcwd() != "/sandbox":
        folder = scratch_folder("labkit-beside")
        os.chdir(folder.__enter__())
        _kept.append(folder)
    for name, text in files.items():
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(text))
    if "" not in sys.path:
        sys.path.insert(0, "")


_kept: list[object] = []


def _cell(files: Mapping[str, str]) -> str:
    return f"__import__('{__name__}', fromlist=['lay_out']).lay_out({dict(files)!r})"


def _below(folder: Path) -> Iterator[Path]:
    """Yield files and folders, a folder before its content; at most as many names per folder as are read."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        wanted = (entry for entry in entries if not any(fnmatch.fnmatch(entry.name, each) for each in _IGNORED))
        for entry in sorted(itertools.islice(wanted, MOST_NAMES + 1), key=lambda entry: entry.name):
            yield Path(entry.path)
            if entry.is_dir(follow_symlinks=False):
                yield from _below(Path(entry.path))


def read_ordinary(path: Path, most_bytes: int) -> bytes | None:
    """Read an ordinary file up to one byte more than ``most_bytes``; None for anything else."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with open(descriptor, "rb") as file:
        return file.read(most_bytes + 1) if stat.S_ISREG(os.fstat(descriptor).st_mode) else None
