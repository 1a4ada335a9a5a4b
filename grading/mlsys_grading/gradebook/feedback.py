"""The page that a student reads: points task by task, why, and nothing of the hidden tests but their names."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from mlsys_grading.gradebook.counted_scores import CellStanding, Standing
from mlsys_grading.gradebook.reasons import Explanation, MarkWords, explain
from mlsys_grading.gradebook.registered import RegisteredCell, RegisteredLab
from mlsys_grading.gradebook.submission import SubmittedCell
from mlsys_grading.gradebook.text import without_controls
from mlsys_grading.report.templates import script, stylesheet
from mlsys_grading.result import Result

MAX_ANSWER = 20_000
_HERE = Path(__file__).parent


def feedback_page(lab: RegisteredLab, submission: Sequence[SubmittedCell], result: Result, standing: Standing) -> str:
    """Render the page: no hidden test's source, no message that can carry its inputs, no other file needed."""
    explained = explain(lab, result)
    tasks = [_task(cells, submission, explained, standing) for cells in _tasks(lab)]
    own = {f"cell {cell.index}": cell.index for cell in submission if cell.registered is None}
    failed = [(own[name], kind) for name, kind in explained.kinds.items() if name in own]
    return render(
        _HERE / "feedback.html.j2",
        _HERE / "feedback.css",
        lab=lab.name,
        student=result.student,
        score=standing.score,
        max_score=lab.max_score,
        penalty=standing.late_penalty,
        waiting=sum(check["max"] for task in tasks for check in task["checks"] if check["status"] == "waiting"),
        tasks=tasks,
        oddities=result.oddities,
        failed=sorted(failed),
        sandbox=result.sandbox,
        versions=dict(result.versions or {}),
    )


def render(template: Path, style: Path, **values: Any) -> str:
    """Fill in the template of a page that needs no other file. Values are escaped, because students wrote them."""
    look = {"css": Markup(stylesheet(str(style))), "js": Markup(script())}  # our own files, no user's text
    return _templates(template.parent).get_template(template.name).render(look | values)


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
    return {
        "name": first.name,
        "title": first.heading or first.name,
        "score": sum(check["score"] for check in checks),
        "max": sum(check["max"] for check in checks),
        "status": _together([check["status"] for check in checks]),
        "checks": checks,
        "comment": standing.cells.get(first.name, CellStanding()).comment,
        "answer": without_controls(answer.text, MAX_ANSWER) if answer and not answer.is_missing else "",
        "error": explained.errors.get(first.name, ""),
    }


def _check(cell: RegisteredCell, standing: CellStanding, told: MarkWords | None) -> dict[str, Any]:
    score = (standing.score or 0.0) + standing.extra_credit
    check = {"name": cell.name, "score": score, "max": cell.max_score, "by_person": standing.is_manual}
    check |= {"status": _status(cell, standing, score), "words": "", "quote": "", "printed": "", "hidden": cell.hidden}
    if told:
        check |= {"quote": told.quote, "printed": told.printed, "hidden": told.hidden}
    if told and check["status"] != "passed":
        check["words"] = told.words
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


@cache
def _templates(folder: Path) -> Environment:
    loader = FileSystemLoader(folder)
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["points"] = lambda value: f"{round(value, 2):g}"
    return environment
