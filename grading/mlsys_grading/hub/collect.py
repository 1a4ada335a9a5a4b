"""Collection of submissions that cannot be forged: no student hands in for another, or before the actual time.

Students write into the exchange themselves. nbgrader takes the name and the time from a folder's name, and follows
links as the course's user: a link to the instructor's notebook would hand in the solution. Here the owner of the
files is the student, and the time is the kernel's own time of their last change, which no user can set.

Reference: man 7 inode (ctime)
"""

from __future__ import annotations

import fnmatch
import os
import pwd
import shutil
import stat
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from nbgrader.api import Gradebook, MissingEntry
from nbgrader.exchange.default import ExchangeCollect
from nbgrader.utils import parse_utc

from mlsys_grading.hub.accounts import uid_of

# Between nbgrader's look at the clock and the last file of a large submission on a crowded machine.
_COPYING = timedelta(minutes=10)
_WRITTEN_LAST = Path("submission_secret.txt")  # by `nbgrader submit`, which a full disk or a kill may end before
_MOST_FILES = 2000
_MOST_LEVELS = 20  # nested folders: os.fwalk recurses into each, and Python limits recursion


class _RefusedError(Exception):
    """A folder in the exchange that is no submission."""


class Collect(ExchangeCollect):  # type: ignore[misc]
    """Replacement for nbgrader's class: ``c.ExchangeFactory.collect = Collect``."""

    def init_src(self) -> None:
        """Find each student's last submission, or the last before the due date if there is one."""
        if not self.coursedir.course_id:
            self.fail("No course id: write c.CourseDirectory.course_id into nbgrader_config.py")
        inbound = Path(self.root, self.coursedir.course_id, "inbound")
        try:
            folders = sorted(inbound.iterdir())
        except OSError as error:
            self.fail(f"{inbound}: {error.strerror}; release an assignment first, as the course's user")
        self.inbound_path = str(inbound)
        self._received: dict[str, datetime] = {}
        self._changed: dict[str, float] = {}
        by_student: dict[str, list[dict[str, Any]]] = {}
        for folder in folders:
            try:
                record = self._record(folder)
            except (OSError, _RefusedError) as error:
                self.log.error("%r is left out: %s", folder.name, error)
                continue
            if record:
                by_student.setdefault(record["username"], []).append(record)
        due = self._due() if self.before_duedate else None
        self.src_records = [_last(records, due) for records in by_student.values()]

    def do_copy(self, src: str, dest: str, log: Any = None) -> None:
        """Copy a submission's ordinary files, and write the time of its arrival."""
        left = self._most_bytes
        try:
            Path(dest).mkdir()
            for below, file in self._files(Path(src)):
                to = Path(dest, below)
                to.parent.mkdir(parents=True, exist_ok=True)
                with open(file, "rb") as read:
                    content = read.read(left + 1)
                    if os.fstat(file).st_ctime > self._changed[src]:
                        raise _RefusedError("it was changed while it was collected; collect again for the later time")
                left -= len(content)
                if left < 0:
                    raise _RefusedError("it grew while it was copied")
                to.write_bytes(content)
            Path(dest, "timestamp.txt").write_text(f"{self._received[src]:%Y-%m-%d %H:%M:%S.%f} UTC")
        except (OSError, _RefusedError) as error:  # it passed a moment ago, so the student is changing it
            shutil.rmtree(dest, ignore_errors=True)
            self.log.error("%r is left out: %s", Path(src).name, error)

    def _record(self, folder: Path) -> dict[str, Any] | None:
        """Return nbgrader's record of a submission; None if it is of another assignment or student."""
        student, assignment, claimed, *_ = [*folder.name.split("+"), "", ""][:4]
        if assignment != self.coursedir.assignment_id or not fnmatch.fnmatchcase(student, self.coursedir.student_id):
            return None
        owner = _owner(folder, student)
        if owner != student:
            raise _RefusedError(f"{owner} handed it in, not {student}")
        changed, is_whole = folder.lstat().st_ctime, False
        for below, file in self._files(folder):
            changed = max(changed, os.fstat(file).st_ctime)
            is_whole |= below == _WRITTEN_LAST and os.fstat(file).st_size > 0
            os.close(file)
        if not is_whole:
            self.log.warning("%r was not copied to its end: an earlier submission counts, if there is one", folder.name)
        received = datetime.fromtimestamp(changed, UTC).replace(tzinfo=None)
        try:
            time = parse_utc(claimed)
        except (ValueError, OverflowError):
            raise _RefusedError(f"{claimed!r} is no time") from None
        if not timedelta() <= received - time <= _COPYING:
            self.log.warning("%r came at %s, not at the time in its name", folder.name, received)
            time = received
        if received > datetime.now(UTC).replace(tzinfo=None) + _COPYING:
            self.log.warning("%r came at %s, which is yet to come: a clock was wrong", folder.name, received)
        self._received[str(folder)], self._changed[str(folder)] = time, changed
        return {"username": student, "filename": folder.name, "timestamp": time, "is_whole": is_whole}

    def _files(self, folder: Path) -> Iterator[tuple[Path, int]]:
        """Open every file that nbgrader would take and yield its path below the folder. No link is followed.

        Raises _RefusedError for anything but the student's own files and folders, and for too many of them.
        """
        uid, left, most_bytes = folder.lstat().st_uid, _MOST_FILES, self._most_bytes
        if not stat.S_ISDIR(folder.lstat().st_mode):
            raise _RefusedError("it is no folder")
        for where, folders, files, at in os.fwalk(folder, follow_symlinks=False, onerror=_refuse):
            if len(Path(where).relative_to(folder).parts) > _MOST_LEVELS:
                raise _RefusedError(f"it has more than {_MOST_LEVELS} folders in each other")
            folders[:] = [name for name in folders if not self._is_ignored(name)]
            for name in [*folders, *files]:
                below = Path(where, name).relative_to(folder)
                found = os.stat(name, dir_fd=at, follow_symlinks=False)
                if found.st_uid != uid:
                    raise _RefusedError(f"{str(below)!r} is not the student's own file")
                if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
                    raise _RefusedError(f"{str(below)!r} is a link or a device; hand in ordinary files")
                left, most_bytes = left - 1, most_bytes - found.st_size
                if left < 0 or most_bytes < 0:
                    most = f"{_MOST_FILES} files or {self.coursedir.max_dir_size} kB"
                    raise _RefusedError(f"it has more than {most}; raise CourseDirectory.max_dir_size, or ask for less")
            for name in files:
                if not self._is_ignored(name):
                    file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=at)
                    yield Path(where, name).relative_to(folder), file

    @property
    def _most_bytes(self) -> int:
        return 1000 * int(self.coursedir.max_dir_size)

    def _is_ignored(self, name: str) -> bool:
        return any(fnmatch.fnmatch(name, pattern) for pattern in self.coursedir.ignore)

    def _due(self) -> datetime | None:
        with Gradebook(self.coursedir.db_url, self.coursedir.course_id) as book:
            try:
                due: datetime | None = book.find_assignment(self.coursedir.assignment_id).duedate
            except MissingEntry:
                return None
            return due


def _last(records: Sequence[dict[str, Any]], due: datetime | None) -> dict[str, Any]:
    whole = [record for record in records if record["is_whole"]] or records
    in_time = [record for record in whole if due and record["timestamp"] <= due]
    return max(in_time or whole, key=lambda record: record["timestamp"])


def _owner(folder: Path, student: str) -> str:
    uid = folder.lstat().st_uid
    if os.environ.get("MLSYS_HUB_UIDS") == "names":  # pods have no passwd file in common
        return student if uid == uid_of(student) else f"user {uid}, who is somebody else,"
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}, who is nobody here,"


def _refuse(error: OSError) -> None:
    raise _RefusedError(f"{error.filename}: {error.strerror}")
