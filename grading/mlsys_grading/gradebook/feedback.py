"""The page that a student reads: task by task what was asked, written and found, and what to try next.

It tells nothing of the hidden tests but their names.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from mlsys_grading.gradebook.counted_scores import CellStanding, Standing
from mlsys_grading.gradebook.machine_marks import NO_RESPONSE
from mlsys_grading.gradebook.reasons import Explanation, MarkWords, explain
from mlsys_grading.gradebook.registered import RegisteredCell, RegisteredLab
from mlsys_grading.gradebook.submission import SubmittedCell
from mlsys_grading.gradebook.text import without_controls
from mlsys_grading.page.markdown import to_html
from mlsys_grading.page.render import render
from mlsys_grading.result import Result
from mlsys_labkit.coach.notes import all_notes

MAX_ANSWER = 20_000
_TEMPLATE = Path(__file__).with_name("feedback.html.j2")
_GROUPS = (
    ("Tasks that lost points", ("failed", "partly")),
    ("Tasks that wait for a person", ("waiting",)),
    ("Tasks with full points", ("passed",)),
)


def feedback_page(lab: RegisteredLab, submission: Sequence[SubmittedCell], result: Result, standing: Standing) -> str:
    """Render the page: no hidden test's source, no message that can carry its inputs, no other file needed."""
    explained = explain(lab, result)
    tasks = [_task(lab, number, cells, submission, explained, standing) for number, cells in enumerate(_tasks(lab), 1)]
    own = {f"cell {cell.index}": cell.index for cell in submission if cell.registered is None}
    failed = [(own[name], kind) for name, kind in explained.kinds.items() if name in own]
    groups = [(title, [task for task in tasks if task["status"] in statuses]) for title, statuses in _GROUPS]
    return render(
        _TEMPLATE,
        lab=lab.name,
        student=result.student,
        score=standing.score,
        max_score=lab.max_score,
        penalty=standing.late_penalty,
        waiting=sum(check["max"] for task in tasks for check in task["checks"] if check["status"] == "waiting"),
        tasks=tasks,
        groups=[(title, found) for title, found in groups if found],
        counts={status: sum(task["status"] == status for task in tasks) for _, kinds in _GROUPS for status in kinds},
        oddities=result.oddities,
        failed=sorted(failed),
        sandbox=result.sandbox,
        versions=dict(result.versions or {}),
    )


def _tasks(lab: RegisteredLab) -> list[list[RegisteredCell]]:
    """Group cells that belong together: an answer, and the tests up to the next."""
    tasks: list[list[RegisteredCell]] = []
    for cell in lab.cells:
        if cell.kind == "locked":
            continue
        if not tasks or cell.kind != "test":
            tasks.append([])
        tasks[-1].append(cell)
    return [cells for cells in tasks if any(cell.max_score for cell in cells)]


def _task(
    lab: RegisteredLab,
    number: int,
    cells: Sequence[RegisteredCell],
    submission: Sequence[SubmittedCell],
    explained: Explanation,
    standing: Standing,
) -> dict[str, Any]:
    first = cells[0]
    checks = [
        _check(cell, standing.cells.get(cell.name, CellStanding()), explained.tests.get(cell.name))
        for cell in cells
        if cell.kind != "solution"
    ]
    answer = next((each for each in submission if each.registered is first and not first.is_locked), None)
    is_untouched = bool(answer and answer.is_untouched)
    comment = standing.cells.get(first.name, CellStanding()).comment
    note = all_notes().get(first.name)
    status = _together([check["status"] for check in checks])
    return {
        "number": number,
        "name": first.name,
        "title": first.heading or first.name,
        "score": sum(check["score"] for check in checks),
        "max": sum(check["max"] for check in checks),
        "status": status,
        "checks": _each_said_once(sorted(checks, key=lambda check: bool(check["status"] == "passed"))),
        "asked": to_html(first.asked) if first.asked else Markup(""),
        "can_hint": status in ("failed", "partly") and note is not None and note.lab == lab.name and bool(note.hints),
        "comment": "" if is_untouched and comment == NO_RESPONSE else comment,
        "answer": without_controls(answer.text, MAX_ANSWER).strip("\n") if answer and not answer.is_missing else "",
        "wants_answer": not first.is_locked,
        "is_code": first.cell_type == "code",
        "is_untouched": is_untouched,
        "error": explained.errors.get(first.name, ""),
    }


def _each_said_once(checks: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Leave out words that the next check repeats: four tests of a stub need one sentence, below the last."""
    told = ("words", "next", "quote", "printed")
    pairs = zip(checks, [*checks[1:], {}], strict=True)
    return [one | ({"words": "", "next": ""} if _same(one, other, told) else {}) for one, other in pairs]


def _same(one: dict[str, Any], other: dict[str, Any], keys: Sequence[str]) -> bool:
    return all(one[key] == other.get(key) for key in keys)


def _check(cell: RegisteredCell, standing: CellStanding, told: MarkWords | None) -> dict[str, Any]:
    score = (standing.score or 0.0) + standing.extra_credit
    status = _status(cell, standing, score)
    check = {"name": cell.name, "score": score, "max": cell.max_score, "status": status}
    check |= {"by_person": standing.is_manual, "words": "", "next": "", "quote": "", "said": None, "printed": ""}
    if told:
        check |= {"quote": told.quote, "said": told.said, "printed": told.printed}
    if told and status != "passed":
        check |= {"words": told.words, "next": told.next_step}
    return check


def _status(cell: RegisteredCell, standing: CellStanding, score: float) -> str:
    if cell.kind != "test" and standing.score is None:
        return "waiting"
    if score >= cell.max_score:
        return "passed"
    return "partly" if score > 0 else "failed"


def _together(statuses: Sequence[str]) -> str:
    if "waiting" in statuses:
        return "waiting"
    return statuses[0] if len(set(statuses)) == 1 else "partly"
