"""``labkit explain``, ``report`` and ``similarity``: from a graded course folder to text, pages and a CSV file."""

from __future__ import annotations

import json
import shutil
import sys
import time
from argparse import Namespace
from pathlib import Path

from mlsys_grading.analysis.explain import explain, find_task
from mlsys_grading.analysis.misconceptions import Profiles
from mlsys_grading.analysis.pages import report_page, similarity_page
from mlsys_grading.analysis.profiles import ProfileStore, find_profiles, wrong_jobs
from mlsys_grading.analysis.report import class_report
from mlsys_grading.analysis.similarity import similarities
from mlsys_grading.files import write_if_changed
from mlsys_grading.grade.bounds import Bounds
from mlsys_grading.grade.engine import open_engine
from mlsys_grading.grade.graded import GradedLab, labs_of
from mlsys_grading.grade.reference import learn
from mlsys_grading.grade.store import Store
from mlsys_grading.report.clock import clock
from mlsys_grading.sandbox.confine import refusal
from mlsys_labkit._base.limits import usable_cores
from mlsys_labkit.errors import LabkitError

__all__ = ["explain_verb", "report_verb", "similarity_verb"]


def explain_verb(arguments: Namespace) -> int:
    """Print an explanation."""
    course = arguments.course
    labs = labs_of(course, arguments.student)
    if arguments.lab:
        labs = [lab for lab in labs if lab.startswith(arguments.lab)]
        if not labs:
            raise LabkitError(f"{arguments.student} has no graded lab {arguments.lab!r}")
    graded = {name: GradedLab.read(course, name, arguments.root) for name in labs}
    fits = [each for each in graded.values() if arguments.student in each.results and _has(each, arguments.task)]
    if not fits:
        known = [task.name for each in graded.values() for task in each.lab.tasks if task.tests]
        raise LabkitError(f"{arguments.student} has no graded task {arguments.task!r}; there are: {', '.join(known)}")
    if len(fits) > 1:
        raise LabkitError(f"{arguments.task} is a task of {' and '.join(e.lab.name for e in fits)}; say which by --lab")
    (found,) = fits
    task = find_task(found.lab, arguments.task)
    result = found.results[arguments.student]
    lost = any(mark.points < mark.max_points for mark in result.marks if mark.name in {t.grade_id for t in task.tests})
    told = explain(
        found.lab,
        result,
        found.cells(arguments.student),
        arguments.task,
        _profiles(found, arguments, task.name) if lost else None,
        found.standing(arguments.student),
    )
    print(told)
    return 0


def report_verb(arguments: Namespace) -> int:
    """Write the class report."""
    graded = GradedLab.read(arguments.course, arguments.lab, arguments.root)
    out = _folder(arguments, graded)
    profiles = _profiles(graded, arguments)
    report = class_report(graded.lab, list(graded.results.values()), graded.submissions, profiles, len(graded.unmarked))
    write_if_changed(out / "report.json", json.dumps(report.to_json(), indent=1) + "\n")
    write_if_changed(out / "index.html", report_page(report))
    print(f"{out / 'index.html'}: {report.students} students, {report.mean:.1f} of {report.points:g} points on average")
    for student in graded.unmarked:
        print(f"  no mark yet: {student}")
    return 0


def similarity_verb(arguments: Namespace) -> int:
    """Write the pairs as a page and as CSV."""
    graded = GradedLab.read(arguments.course, arguments.lab)
    out = _folder(arguments, graded)
    least_share = arguments.share / 100
    found = similarities(graded.lab, graded.submissions, least_bits=arguments.bits, least_share=least_share)
    found.to_sheet().write(out / "similarity.csv")
    write_if_changed(out / "similarity.html", similarity_page(found))
    pairs = len(found.standing_out)
    print(f"{out / 'similarity.html'}: {pairs} pair{'s' * (pairs != 1)} of {found.students} students to look at")
    return 0


def _has(graded: GradedLab, task: str) -> bool:
    return any(task == each.name or task in {test.grade_id for test in each.tests} for each in graded.lab.tasks)


def _folder(arguments: Namespace, graded: GradedLab) -> Path:
    out: Path = arguments.out or arguments.course / "report" / graded.lab.name
    return out


def _profiles(graded: GradedLab, arguments: Namespace, task: str = "") -> Profiles:
    """Return the profiles of the wrong answers; grade those not graded yet, with a bar on a terminal."""
    if not graded.lab.wrong_answers:
        print("labkit: no wrong answers to compare with; name the checkout that has them with --root", file=sys.stderr)
        return {}
    if arguments.code_only:
        return {}
    # They are the lab's own and need no sandbox; with one, they are treated as students' answers are.
    bounds = Bounds(sandbox=not refusal()).of(graded.source.notebook)
    progress = _Progress(graded.lab.name)
    with open_engine("local", arguments.jobs or max(1, int(usable_cores()))) as engine:
        try:
            contract = learn(engine, graded.source, bounds, Store(arguments.course))
        except LabkitError as error:  # an error of the lab or of this machine; existing marks can still be reported
            print(f"labkit: wrong answers are compared by their code alone: {error}", file=sys.stderr)
            return {}
        jobs = dict(wrong_jobs(graded.source, graded.lab, contract, bounds))
        try:
            store = ProfileStore(arguments.course, graded.lab.name)
            found = find_profiles(engine, jobs, graded.lab, store, task, progress)
        finally:
            progress.close()
    wanted = [key for key in jobs if task in ("", key[0])]
    if missing := [f"{name} of {of}" for of, name in wanted if (of, name) not in found]:
        print(f"labkit: {len(missing)} wrong answers could not be graded: {', '.join(missing)}", file=sys.stderr)
    return found


class _Progress:
    """Progress on stderr: a bar with the time that is left on a terminal, one line elsewhere."""

    def __init__(self, lab: str) -> None:
        self._lab, self._live, self._started = lab, sys.stderr.isatty(), time.monotonic()

    def __call__(self, done: int, total: int) -> None:
        if not done and not self._live:
            print(f"{self._lab}: {total} wrong answers to grade, once", file=sys.stderr, flush=True)
        if self._live:
            seconds = time.monotonic() - self._started
            left = f"about {clock(seconds * (total - done) / done)} left" if done else "starting"
            filled = 24 * done // total
            bar = "━" * filled + "╌" * (24 - filled)
            line = f"{bar} {done}/{total} wrong answers, graded once · {clock(seconds)} · {left}"
            sys.stderr.write(f"\r\x1b[K{line[: shutil.get_terminal_size().columns - 1]}")
            sys.stderr.flush()

    def close(self) -> None:
        if self._live:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
