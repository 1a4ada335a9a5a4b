"""Profiles of the lab's wrong answers: how each fails when it is graded as a submission is.

A profile is kept in the course folder under the name of its job, a hash of all that it depends on, so that only what
has changed is graded again.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from mlsys_grading.analysis.misconceptions import Profile, Profiles, Sign, profile
from mlsys_grading.files import write_if_changed
from mlsys_grading.grade.bounds import Bounds
from mlsys_grading.grade.course import LabSource
from mlsys_grading.grade.engine import GradingEngine
from mlsys_grading.grade.job import GradingJob
from mlsys_grading.grade.store import FOLDER
from mlsys_grading.lab import Lab

Observer = Callable[[int, int], None]  # number of wrong answers done, number in all
Key = tuple[str, str]  # task, wrong answer


class ProfileStore:
    """The file ``.mlsys-grading/profiles/LAB.json``. If it cannot be read, its profiles are made again."""

    def __init__(self, course: Path, lab: str) -> None:
        self._path = course / FOLDER / "profiles" / f"{lab}.json"
        self._kept: dict[str, Profile] = {}
        with contextlib.suppress(OSError, ValueError, TypeError, AttributeError):
            kept = json.loads(self._path.read_text("utf-8"))
            self._kept = {job: {test: Sign(**sign) for test, sign in found.items()} for job, found in kept.items()}

    def __getitem__(self, job: str) -> Profile | None:
        return self._kept.get(job)

    def put(self, job: str, found: Profile) -> None:
        self._kept[job] = found

    def write(self, jobs: Sequence[str]) -> None:
        """Store the profiles of ``jobs``, and drop those of jobs that no longer exist."""
        found = {job: self._kept[job] for job in jobs if job in self._kept}
        kept = {job: {test: asdict(sign) for test, sign in signs.items()} for job, signs in found.items()}
        write_if_changed(self._path, json.dumps(kept, indent=1, sort_keys=True) + "\n")


def wrong_jobs(
    source: LabSource, lab: Lab, contract: Mapping[str, list[str]], bounds: Bounds
) -> Iterator[tuple[Key, GradingJob]]:
    """Make a job for each wrong answer: the solution with that one cell replaced, up to its task's last test."""
    of_lab = source.terms(contract, bounds)
    for task in lab.tasks:
        if not task.tests:
            continue
        tests = {test.index for test in task.tests}
        cells = [
            cell for at, cell in enumerate(source.cells[: max(tests) + 1]) if at in tests or not lab.cells[at].is_test
        ]
        for wrong in lab.wrong_for(task.name):
            solution = source.cells[task.solution.index]
            submission = [{**cell, "source": wrong.source} if cell is solution else cell for cell in cells]
            name = f"{task.name} {wrong.name}"
            yield (task.name, wrong.name), GradingJob.of(lab.name, name, cells, submission, **of_lab)


def find_profiles(
    engine: GradingEngine,
    jobs: Mapping[Key, GradingJob],
    lab: Lab,
    store: ProfileStore,
    task: str = "",
    observe: Observer = lambda done, total: None,
) -> Profiles:
    """Return the profiles of ``jobs``, of :func:`wrong_jobs`; grade those that are not kept.

    A wrong answer that the machine could not grade has no profile, and is tried again the next time.

    Args:
        task: grade only what is missing of this task; empty: of all.
    """
    tasks = {task.name: task for task in lab.tasks}
    keys = {job.name: key for key, job in jobs.items()}
    missing = [job for (of, _), job in jobs.items() if task in ("", of) and store[job.name] is None]
    if missing:
        observe(0, len(missing))
    try:
        for done, each in enumerate(engine.run(missing), 1):
            if each.result.status == "graded":
                of, _ = keys[each.result.job]
                store.put(each.result.job, profile(tasks[of], each.result.marks))
            observe(done, len(missing))
    finally:
        if missing:
            store.write([job.name for job in jobs.values()])
    return {key: found for key, job in jobs.items() if (found := store[job.name]) is not None}
