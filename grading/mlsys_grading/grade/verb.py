"""``labkit grade``: chooses the submissions, the engine and the gradebook, and prints the summary."""

from __future__ import annotations

import fcntl
import os
import sys
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mlsys_grading.examine.notebook import UnreadableError
from mlsys_grading.files import named
from mlsys_grading.grade.bounds import Bounds
from mlsys_grading.grade.course import CourseFolder, HandedIn, LabSource
from mlsys_grading.grade.difference import Differences, MarkChange, changed_tasks, shown_points, tasks_of
from mlsys_grading.grade.engine import GradingEngine, open_engine
from mlsys_grading.grade.job import GradingJob
from mlsys_grading.grade.ledger import Ledger, WrittenResult
from mlsys_grading.grade.progress import GradingProgress
from mlsys_grading.grade.reference import learn
from mlsys_grading.grade.store import FOLDER, Store
from mlsys_grading.gradebook.course import course_settings
from mlsys_grading.gradebook.gradebook import Gradebook, RecordedMarks
from mlsys_grading.gradebook.registered import register
from mlsys_grading.gradebook.text import printable
from mlsys_grading.report.clock import clock
from mlsys_grading.result import Result
from mlsys_grading.sandbox.confine import refusal
from mlsys_grading.sandbox.root import shown_with
from mlsys_labkit._base.limits import usable_cores
from mlsys_labkit.errors import LabkitError

_WARNING = (
    "labkit: WARNING: --no-sandbox: students' code runs with your rights: it can read every file that you can, other "
    "students' work and the gradebook too. The gradebook notes it."
)
_MOST_NAMES = 4


def grade_verb(arguments: Namespace) -> int:
    """Grade the labs that ``arguments`` name, and return the exit code.

    Raises LabkitError if nothing can be graded; KeyboardInterrupt on Ctrl-C, when what was graded has been written.
    """
    course = CourseFolder.at(arguments.course.resolve())
    labs = course.labs(arguments.labs, arguments.all)
    if arguments.no_sandbox:
        print(_WARNING, file=sys.stderr, flush=True)
    elif arguments.engine == "local" and (reason := refusal()):
        raise LabkitError(f"this machine allows no sandbox: {reason}; grade on one that does, or say --no-sandbox")
    elif shown := shown_with(course.root):
        raise LabkitError(f"{course.root} is in {shown}, which every submission can read; move the course elsewhere")
    settings = course_settings(course.root)
    jobs = arguments.jobs or max(1, int(usable_cores()))
    outcomes = []
    with (
        _alone(course.root),
        open_engine(arguments.engine, jobs) as engine,
        Gradebook(course.root / "gradebook.db", settings.course, settings.late) as book,
    ):
        for lab in labs:
            try:
                source = course.source(lab)
                handed_in = course.handed_in(lab, arguments.student or ())
                bounds = Bounds(sandbox=not arguments.no_sandbox).of(source.notebook, dict(arguments.limit or ()))
                terms = source.terms(learn(engine, source, bounds, Store(course.root)), bounds)
                ledger = Ledger.open(course.root, register(lab, source.notebook), book)
            except LabkitError as error:
                if len(labs) == 1:
                    raise
                print(f"labkit: {error}", file=sys.stderr, flush=True)
                outcomes.append(2)
                continue
            try:
                outcomes.append(_Grading(engine, ledger, source, terms, arguments.force).run(handed_in))
            finally:
                ledger.write_grades()
    return 2 if all(outcome == 2 for outcome in outcomes) else int(any(outcomes))


class _Grading:
    """The grading of one lab."""

    def __init__(
        self, engine: GradingEngine, ledger: Ledger, source: LabSource, terms: Mapping[str, Any], force: bool
    ) -> None:
        self._engine, self._ledger, self._source, self._terms, self._force = engine, ledger, source, terms, force
        self._under_way: dict[str, tuple[list[dict[str, Any]], str]] = {}
        self._counts: Counter[str] = Counter()
        self._apart: list[str] = []
        self._tasks = tasks_of(ledger.lab)
        self._differences = Differences(ledger.course, source.lab)

    def run(self, handed_in: Sequence[HandedIn]) -> int:
        """Grade and write what has changed; returns 1 if something needs attention, else 0."""
        self._width = max((len(each.student) for each in handed_in), default=0)
        self._progress = GradingProgress(sys.stdout, len(handed_in))
        started = time.monotonic()
        print(f"{self._source.lab}: {len(handed_in)} submissions", flush=True)
        try:
            for done in self._engine.run(self._jobs(handed_in), self._progress.tick):
                cells, timestamp = self._under_way.pop(done.result.student)
                if done.result.status == "infrastructure":
                    self._set_apart("infrastructure", done.result.student, done.result.why)
                else:
                    self._write(done.result, cells, timestamp, "graded")
        finally:
            self._progress.close()
            self._say_what_became(time.monotonic() - started)
        return int(bool(self._apart))

    def _jobs(self, handed_in: Sequence[HandedIn]) -> Iterator[GradingJob]:
        """Yield a job for each submission that has to be graded; write a known result that is not written yet."""
        for each in handed_in:
            try:
                cells, timestamp, beside = each.cells(), each.timestamp(), each.beside()
            except UnreadableError as error:
                self._set_apart("unreadable", each.student, str(error))
                continue
            job = GradingJob.of(each.lab, each.student, self._source.cells, cells, beside=beside, **self._terms)
            known = None if self._force else self._ledger.known(each.student, job.name)
            if known is None:
                self._under_way[each.student] = cells, timestamp
                yield job
            elif self._ledger.is_written(known, timestamp):
                self._counts["unchanged"] += 1
                self._progress.advance(graded=False)
            else:
                self._write(known, cells, timestamp, "written again")

    def _write(self, result: Result, cells: Sequence[dict[str, Any]], timestamp: str, what: str) -> None:
        with named(self._ledger.course):
            written = self._ledger.write(result, cells, timestamp)
        self._counts[what] += 1
        if change := self._change(written):
            self._differences.add(change)
        self._progress.advance(self._line(result, written.recorded), graded=what == "graded")

    def _change(self, written: WrittenResult) -> MarkChange | None:
        """Return the difference to the earlier grading of a submission, or None."""
        recorded, score = written.recorded, written.score_before
        if recorded.before is None or score is None:
            return None
        before, after = changed_tasks(self._tasks, recorded.before, recorded.after)
        if not after and score == written.score_after:
            return None
        return MarkChange(recorded.student, before, after, score, written.score_after)

    def _line(self, result: Result, recorded: RecordedMarks) -> str:
        line = f"{result.student:<{self._width}}  {result.points:g}/{result.max_points:g}  {result.seconds:.1f} s"
        lost = [mark.name for mark in result.marks if mark.points < mark.max_points]
        if lost:
            more = f" and {len(lost) - _MOST_NAMES} more" if len(lost) > _MOST_NAMES else ""
            line += f"  lost: {', '.join(lost[:_MOST_NAMES])}{more}"
        if changes := _changes(recorded):
            line += f"  changed: {changes}"
        if result.oddities:
            line += f"  note: {'; '.join(result.oddities[:_MOST_NAMES])}"
        return line

    def _set_apart(self, what: str, student: str, why: str) -> None:
        self._counts[what] += 1
        self._apart.append(f"{student}: {what}, no mark was written: {why}")
        self._progress.advance(f"{printable(student):<{self._width}}  {what}: {why}", graded=False)

    def _say_what_became(self, seconds: float) -> None:
        counted = ", ".join(f"{count} {what}" for what, count in self._counts.items()) or "nothing to grade"
        print(f"{self._source.lab}: {counted}; {clock(seconds)}", flush=True)
        for line in self._apart:
            print(f"  {printable(line)}", flush=True)
        for line in self._differences.close(self._counts["graded"]):
            print(printable(line), flush=True)


def _changes(recorded: RecordedMarks) -> str:
    """Describe the machine's marks before and now, where they differ: ``4 -> 6 (f_test 0 -> 2)``."""
    before, after = recorded.before, recorded.after
    if before is None or before == after:
        return ""
    cells = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    told = ", ".join(f"{name} {shown_points(before.get(name))} -> {shown_points(after.get(name))}" for name in cells)
    return f"{_sum(before.values()):g} -> {_sum(after.values()):g} ({told})"


def _sum(points: Any) -> float:
    return float(sum(each or 0.0 for each in points))


@contextmanager
def _alone(course: Path) -> Iterator[None]:
    """Lock the course folder, so that the gradebook has one writer at a time."""
    folder = course / FOLDER
    folder.mkdir(exist_ok=True)
    with open(os.open(folder / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LabkitError(f"another labkit grade is at work in {course}; wait for it, or end it") from None
        yield
