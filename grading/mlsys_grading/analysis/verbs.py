"""``labkit explain``, ``report`` and ``similarity``: from a graded course folder to text, pages and a CSV file."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from pathlib import Path

from mlsys_grading.analysis.explain import explain, find_task
from mlsys_grading.analysis.misconceptions import Profiles, profile
from mlsys_grading.analysis.pages import explanation_page, report_page, similarity_page
from mlsys_grading.analysis.profiles import ProfileStore, find_profiles, wrong_jobs
from mlsys_grading.analysis.report import class_report
from mlsys_grading.analysis.similarity import similarities
from mlsys_grading.files import write_if_changed
from mlsys_grading.grade.bounds import Bounds
from mlsys_grading.grade.engine import open_engine
from mlsys_grading.grade.graded import GradedLab, labs_of
from mlsys_grading.grade.progress import Bar
from mlsys_grading.grade.reference import learn
from mlsys_grading.grade.store import Store
from mlsys_grading.gradebook.text import printable
from mlsys_grading.sandbox.confine import refusal
from mlsys_labkit._base.limits import usable_cores
from mlsys_labkit.errors import LabkitError


def explain_verb(arguments: Namespace) -> int:
    """Print an explanation."""
    student = arguments.student
    labs = labs_of(arguments.course, student)
    if arguments.lab:
        labs = [lab for lab in labs if lab.startswith(arguments.lab)]
        if not labs:
            raise LabkitError(f"{student} has no graded lab {arguments.lab!r}")
    graded = [GradedLab.read(arguments.course, name, arguments.root) for name in labs]
    if not any(student in each.results for each in graded):
        trouble = "; ".join(f"{each.lab.name} was not graded" for each in graded)
        raise LabkitError(f"{student}: {trouble}; run: labkit grade {labs[0]} --course {arguments.course}")
    tasks = [(each, find_task(each.lab, arguments.task)) for each in graded if student in each.results]
    fits = [(each, task) for each, task in tasks if task]
    if not fits:
        known = [task.name for each in graded for task in each.lab.tasks if task.tests]
        raise LabkitError(f"{student} has no graded task {arguments.task!r}; there are: {', '.join(known)}")
    if len(fits) > 1:
        names = " and ".join(each.lab.name for each, _ in fits)
        raise LabkitError(f"{arguments.task} is a task of {names}; say which by --lab")
    ((found, task),) = fits
    result = found.results[student]
    profiles = _profiles(found, arguments, task.name) if profile(task, result.marks) else None
    told = explain(found.lab, result, found.cells(student), arguments.task, profiles, found.standing(student))
    print(told)
    if arguments.page:
        write_if_changed(arguments.page, explanation_page(told))
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
        print(f"  no mark yet: {printable(student)}")
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
    bar = Bar(sys.stderr)

    def observe(done: int, total: int) -> None:
        if not done and not bar.is_live:
            print(f"{graded.lab.name}: {total} wrong answers to grade, once", file=sys.stderr, flush=True)
        bar.draw(done, total, done, " wrong answers, graded once")

    with open_engine("local", arguments.jobs or max(1, int(usable_cores()))) as engine:
        try:
            contract = learn(engine, graded.source, bounds, Store(arguments.course))
        except LabkitError as error:  # an error of the lab or of this machine; existing marks can still be reported
            print(f"labkit: wrong answers are compared by their code alone: {error}", file=sys.stderr)
            return {}
        jobs = dict(wrong_jobs(graded.source, graded.lab, contract, bounds))
        try:
            store = ProfileStore(arguments.course, graded.lab.name)
            found = find_profiles(engine, jobs, graded.lab, store, task, observe)
        finally:
            bar.close()
    wanted = [key for key in jobs if task in ("", key[0])]
    if missing := [f"{name} of {of}" for of, name in wanted if (of, name) not in found]:
        print(f"labkit: {len(missing)} wrong answers could not be graded: {', '.join(missing)}", file=sys.stderr)
    return found
