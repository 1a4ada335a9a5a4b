"""A release put into a folder that may hold more files: all of it or nothing, and never over somebody's work.

New files are first written to ``.released.next/new``, and the replaced ones copied to ``.released.next/old``. Then a
journal of both is written, the files are moved into place, and the journal is removed. A run that ends before the
journal is written has changed nothing; one that ends later is undone, by itself or, if it was killed, by the next run.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from mlsys_grading.files import named, write_atomic
from mlsys_grading.release.manifest import SUMS, dump_sums, read_sums, sum_of
from mlsys_grading.release.tree import File, is_program
from mlsys_labkit.errors import LabkitError

NEXT = ".released.next"
_JOURNAL = "journal.json"


@dataclass(frozen=True)
class Change:
    """The changes that make a folder hold a release.

    Attributes:
        files: what to write, path by path.
        remove: files of an earlier release that this one no longer has.
        theirs: files that would be overwritten and that no release wrote as they are now.
        kept: files of an earlier release that this one no longer has, but that were edited since: they stay.
    """

    files: Mapping[str, File]
    remove: tuple[str, ...]
    theirs: tuple[str, ...]
    kept: tuple[str, ...]

    @property
    def is_none(self) -> bool:
        return not (self.files or self.remove)


def change(folder: Path, tree: Mapping[str, File]) -> Change:
    """Compare ``tree`` with ``folder``. Raises LabkitError where a link or a folder is in the way."""
    before = read_sums(folder)
    sums = {path: sum_of(file.data) for path, file in tree.items()}
    write, theirs = {}, []
    for path, file in {**tree, SUMS: File(dump_sums(sums))}.items():
        there = _existing(folder, path)
        found = sum_of(there.read_bytes()) if there else ""
        if found != sum_of(file.data) or is_program(folder / path) != file.runs:
            write[path] = file
            if found and path != SUMS and found not in (before.get(path), sums[path]):
                theirs.append(path)
    gone = [path for path in before if path not in tree and _existing(folder, path)]
    kept = [path for path in gone if sum_of((folder / path).read_bytes()) != before[path]]
    return Change(write, tuple(path for path in gone if path not in kept), tuple(theirs), tuple(kept))


def put(folder: Path, what: Change) -> None:
    """Make the change. After an error or Ctrl-C the folder is as it was before."""
    folder.mkdir(parents=True, exist_ok=True)
    undo_unfinished(folder)
    stage = folder / NEXT
    try:
        for path, file in what.files.items():
            _write(stage / "new" / path, file)
        replaced = [path for path in (*what.files, *what.remove) if _existing(folder, path)]
        for path in replaced:
            copy = stage / "old" / path
            with named(copy):
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(folder / path, copy)
        added = [path for path in what.files if path not in replaced]
        write_atomic(stage / _JOURNAL, json.dumps({"replaced": replaced, "added": added}))
        for path in what.files:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            os.replace(stage / "new" / path, folder / path)
        for path in what.remove:
            (folder / path).unlink()
            _remove_empty(folder, path)
        (stage / _JOURNAL).unlink()
    finally:
        undo_unfinished(folder)


def is_unfinished(folder: Path) -> bool:
    """Return whether a run was killed while it moved files into place."""
    return (folder / NEXT / _JOURNAL).is_file()


def undo_unfinished(folder: Path) -> None:
    """Undo the changes of a run that did not finish, and remove its stage."""
    stage = folder / NEXT
    if is_unfinished(folder):
        journal = json.loads((stage / _JOURNAL).read_text(encoding="utf-8"))
        for path in journal["replaced"]:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileNotFoundError):  # already moved back by another run that was killed
                os.replace(stage / "old" / path, folder / path)
        for path in journal["added"]:
            (folder / path).unlink(missing_ok=True)
            _remove_empty(folder, path)
        (stage / _JOURNAL).unlink()
    if stage.is_dir():
        shutil.rmtree(stage)


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Hold the folder's lock. Raises LabkitError while another release is at work in it."""
    is_new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LabkitError(f"another labkit release is at work in {folder}; wait for it, or end it") from None
        yield
    finally:
        if is_new:
            with contextlib.suppress(OSError):  # nothing was released, and the folder is empty
                folder.rmdir()
        os.close(lock)


def _existing(folder: Path, path: str) -> Path | None:
    """Return the file at ``path``, or None. Raises LabkitError for a folder there, or a link on the way."""
    place = folder
    for part in Path(path).parts:
        place = place / part
        if place.is_symlink():
            raise LabkitError(f"{place} is a link, and a release writes no further than {folder}; remove it")
    if place.is_dir():
        raise LabkitError(f"{place} is a folder, and the release has a file of that name; move it away")
    return place if place.is_file() else None


def _write(path: Path, file: File) -> None:
    with named(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file.data)
        if file.runs:
            path.chmod(path.stat().st_mode | 0o111)


def _remove_empty(folder: Path, path: str) -> None:
    """Remove the folders that held nothing but ``path``."""
    for parent in (folder / path).parents:
        if parent == folder:
            return
        try:
            parent.rmdir()
        except OSError:  # it holds something, or is gone
            return
