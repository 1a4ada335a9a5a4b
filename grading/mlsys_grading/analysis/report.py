"""Summary of a class at one lab: marks, tasks from the hardest, reasons of failures, common wrong answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, NamedTuple

from mlsys_grading.analysis.answers import answers_of, released
from mlsys_grading.analysis.misconceptions import HOWS, Profiles, canonical, marks_of, profile, resemblances
from mlsys_grading.gradebook.reasons import reason
from mlsys_grading.lab import Lab, Task
from mlsys_grading.result import Result
from mlsys_labkit.errors import LabkitError

BINS = 10
LEAST_COMMON = 3  # students with one answer: a smaller number could identify them


@dataclass(frozen=True)
class Bin:
    """Students with marks from ``low`` to below ``high``; the last bin holds full marks too."""

    low: float
    high: float
    students: int


@dataclass(frozen=True)
class FailureReason:
    """Tests that failed for one reason. ``students`` counts each once."""

    why: str
    kind: str
    students: int


@dataclass(frozen=True)
class TaskReport:
    """One task.

    Attributes:
        title: the heading above it in the lab, or its name.
        mean: points that students got on average; ``share`` is that of all points.
        full, part, none, unanswered: students with all points, with some, with none, and whose stub is as it was.
        recognised: students whose answer has the code or the results of one of the lab's wrong answers.
        median_seconds, slow_seconds: of its tests; the second is the 90th percentile.
    """

    name: str
    title: str
    points: float
    mean: float
    share: float
    full: int
    part: int
    none: int
    unanswered: int | None
    median_seconds: float
    slow_seconds: float
    failures: tuple[FailureReason, ...]
    recognised: int

    @property
    def lost(self) -> int:
        """The number of students who lost points."""
        return self.part + self.none


@dataclass(frozen=True)
class CommonAnswer:
    """A wrong answer and the number of students who gave it. One that is not the lab's has its code in place of a name.

    Attributes:
        same_code: students who wrote that program, but for names and layout.
        same_results: students whose answer has the same result in every test; several wrong answers may share it.
        same_failures: students whose answer fails the tests that this wrong answer alone fails, with other messages.
    """

    task: str
    name: str
    misconception: str
    same_code: int
    same_results: int
    same_failures: int
    source: str = ""


@dataclass(frozen=True)
class ClassReport:
    """Plain data without a student's name; tasks from the hardest.

    ``ungraded`` submissions could not be read, or failed for the machine's fault; they are in no figure.
    """

    lab: str
    students: int
    ungraded: int
    points: float
    mean: float
    median: float
    histogram: tuple[Bin, ...]
    tasks: tuple[TaskReport, ...]
    common: tuple[CommonAnswer, ...]

    def to_json(self) -> dict[str, Any]:
        """Return plain data for ``json.dumps``."""
        return asdict(self)


def class_report(
    lab: Lab,
    results: Sequence[Result],
    submissions: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
    profiles: Profiles | None = None,
    unmarked: int = 0,
) -> ClassReport:
    """Sum up a class.

    Args:
        results: one a student.
        submissions: student -> cells; without them no answers are compared.
        profiles: how the lab's wrong answers fail, of ``profiles.find_profiles``.
        unmarked: submissions that have no result at all.

    Raises LabkitError if nothing was graded, or a student stands there twice.
    """
    graded = [result for result in results if result.status == "graded"]
    if not graded:
        raise LabkitError(f"{lab.name}: nothing was graded; there is nothing to report")
    twice = [name for name, count in Counter(result.student for result in results).items() if count > 1]
    if twice:
        raise LabkitError(f"{lab.name}: {twice[0]} has two results; keep the last")
    stubs = list(released(lab)) if submissions is not None else []
    answers = {
        student: {answer.cell: answer.source for answer in answers_of(lab, cells, stubs)}
        for student, cells in (submissions or {}).items()
    }
    points = [result.points for result in graded]
    found = {task.name: _common(lab, task, graded, answers, profiles) for task in lab.tasks}
    known = answers if submissions is not None else None
    tasks = [_task(lab, task, graded, known, found[task.name].recognised) for task in lab.tasks if task.points]
    return ClassReport(
        lab.name,
        len(graded),
        len(results) - len(graded) + unmarked,
        lab.points,
        sum(points) / len(points),
        median(points),
        _histogram(points, lab.points),
        tuple(sorted(tasks, key=lambda task: task.share)),
        tuple(each for common in found.values() for each in common.answers),
    )


def _histogram(points: Sequence[float], most: float) -> tuple[Bin, ...]:
    if not most:
        return ()
    counts = Counter(min(BINS - 1, max(0, int(BINS * got / most + 1e-9))) for got in points)
    return tuple(Bin(most * at / BINS, most * (at + 1) / BINS, counts[at]) for at in range(BINS))


def _task(
    lab: Lab,
    task: Task,
    results: Sequence[Result],
    answers: Mapping[str, Mapping[str, str]] | None,
    recognised: int,
) -> TaskReport:
    of = {result.student: marks_of(task, result.marks) for result in results}
    got = [sum(mark.points for mark in marks) for marks in of.values()]
    seconds = sorted(sum(mark.seconds for mark in marks) for marks in of.values())
    why: Counter[tuple[str, str]] = Counter()
    for marks in of.values():
        lost = [mark for mark in marks if mark.points < mark.max_points]
        why.update({(reason(mark, with_kind=True), mark.kinds[0] if mark.kinds else "") for mark in lost})
    mean = sum(got) / len(got)
    full, none = sum(each >= task.points for each in got), sum(each <= 0 for each in got)
    return TaskReport(
        task.name,
        lab.asked(task)[0] or task.name,
        task.points,
        mean,
        mean / task.points,
        full,
        len(got) - full - none,
        none,
        None if answers is None else sum(task.name not in answers.get(student, {}) for student in of),
        median(seconds),
        seconds[min(len(seconds) - 1, int(0.9 * len(seconds)))],
        tuple(FailureReason(*pair, count) for pair, count in sorted(why.items(), key=lambda item: (-item[1], item[0]))),
        recognised,
    )


class _Common(NamedTuple):
    answers: list[CommonAnswer]
    recognised: int  # students


def _common(
    lab: Lab, task: Task, results: Sequence[Result], answers: Mapping[str, Mapping[str, str]], profiles: Profiles | None
) -> _Common:
    recognised = 0
    counts: Counter[tuple[str, str]] = Counter()
    unknown: dict[str, list[str]] = {}
    for result in results:
        answer, failures = answers.get(result.student, {}).get(task.name, ""), profile(task, result.marks)
        if not answer or not failures:
            continue
        found = resemblances(lab, task, answer, failures, profiles)
        counts.update((like.wrong, like.how) for like in found)
        if any(like.how in ("same code", "same results") for like in found):
            recognised += 1
        else:
            unknown.setdefault(canonical(answer), []).append(answer)
    known = [
        CommonAnswer(task.name, wrong.name, wrong.misconception, code, results, failures)
        for wrong in lab.wrong_for(task.name)
        for code, results, failures in [[counts[wrong.name, how] for how in HOWS]]
        if code or results or failures
    ]
    common = [same for same in unknown.values() if len(same) >= LEAST_COMMON]
    known += [CommonAnswer(task.name, "", "", len(same), 0, 0, same[0]) for same in common]
    known.sort(key=lambda each: (-each.same_code - each.same_results, -each.same_failures, each.name))
    return _Common(known, recognised)
