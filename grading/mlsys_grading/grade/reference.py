"""The lab's own solution, graded like a submission, to learn what honest calls do and whether the lab can be graded."""

from __future__ import annotations

from mlsys_grading.grade.bounds import Bounds
from mlsys_grading.grade.course import LabSource
from mlsys_grading.grade.engine import GradingEngine
from mlsys_grading.grade.job import GradingJob
from mlsys_grading.grade.store import Store
from mlsys_labkit.errors import LabkitError

_REFERENCE = "the reference solution"
_MOST_REASONS = 5


def learn(engine: GradingEngine, source: LabSource, bounds: Bounds, store: Store) -> dict[str, list[str]]:
    """Grade the lab's solution once, and return the contract of its calls.

    Raises LabkitError, with cells and reasons, if the solution does not get full marks: then no mark of this lab would
    mean anything.
    """
    job = GradingJob.of(source.lab, _REFERENCE, source.cells, source.cells, **source.terms(None, bounds))
    kept = store.contract(source.lab, job.name)
    if kept is not None:
        return kept
    (done,) = engine.run([job])
    if done.result.status == "infrastructure":
        raise LabkitError(f"{source.lab} cannot be graded here: {done.result.why}")
    lost = [f"{mark.name}: {mark.error[:200]}" for mark in done.result.marks if mark.points < mark.max_points]
    if lost:
        rest = f"; and {len(lost) - _MOST_REASONS} more" if len(lost) > _MOST_REASONS else ""
        raise LabkitError(
            f"{source.lab} cannot be graded: its own solution gets {done.result.points:g} of "
            f"{done.result.max_points:g} points: {'; '.join(lost[:_MOST_REASONS])}{rest}; mend the lab"
        )
    store.put_contract(source.lab, job.name, done.contract)
    return done.contract
