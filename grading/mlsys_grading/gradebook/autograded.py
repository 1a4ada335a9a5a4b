"""The graded notebook that formgrader shows: the submission, the lab's own tests, and the result of each test.

nbgrader reads the same marks from the outputs: an error is no points, a number is that many points, and no output is
all of them. No text of a student is HTML here, because it would run in the grader's browser and could set marks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mlsys_grading.gradebook.registered import RegisteredLab
from mlsys_grading.gradebook.submission import SubmittedCell
from mlsys_grading.gradebook.text import clean, one_line
from mlsys_grading.result import CellMark, Result

MAX_PRINTED = 20_000
_JOINER = "\u2060"
_ACTIVE = [re.compile(pattern, re.IGNORECASE) for pattern in (r"(<)([a-z/!?])", r"(&)(#|\w+;)", r"(java|vb)(script)")]
_MISSING = "# This cell is missing from the submission."


def autograded_files(
    path: Path, lab: RegisteredLab, submission: Sequence[SubmittedCell], result: Result, timestamp: str = ""
) -> dict[Path, str]:
    """Return path -> content: the notebook, and the text of the submission's timestamp.txt, if it has one.

    nbgrader keeps the timestamp beside the notebook: ``nbgrader autograde`` grades whatever is newer than that.
    """
    notebook = graded_notebook(lab, submission, result)
    files = {path: json.dumps(notebook, indent=1, sort_keys=True, ensure_ascii=False) + "\n"}
    return files | {path.with_name("timestamp.txt"): timestamp} if timestamp else files


def graded_notebook(lab: RegisteredLab, submission: Sequence[SubmittedCell], result: Result) -> dict[str, Any]:
    """Build the notebook by nbformat 4.5, its cells' metadata by nbgrader's schema 3."""
    marks = {mark.name: mark for mark in result.marks}
    failed = result.failed_cells or {}
    graded = {"job": result.job, "sandbox": result.sandbox, "versions": dict(result.versions or {})}
    return {
        "cells": [_cell(at, cell, marks, failed) for at, cell in enumerate(submission)],
        "metadata": {
            "kernelspec": json.loads(lab.kernelspec),
            "language_info": {"name": "python"},
            "mlsys_grading": graded,
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def _cell(at: int, cell: SubmittedCell, marks: Mapping[str, CellMark], failed: Mapping[str, str]) -> dict[str, Any]:
    registered = cell.registered
    is_safe = cell.cell_type == "code" or (registered is not None and registered.is_locked)
    source = cell.text if is_safe else harmless(cell.text)
    made: dict[str, Any] = {"cell_type": cell.cell_type, "id": f"cell-{at}", "metadata": {}, "source": source}
    if registered:
        made["metadata"] = {"deletable": False, "nbgrader": dict(registered.metadata)}
        if registered.is_locked:
            made["metadata"]["editable"] = False
        if cell.is_missing and not cell.text:
            made["source"] = _MISSING if cell.cell_type == "code" else _MISSING.lstrip("# ")
    if cell.attachments:
        made["attachments"] = cell.attachments
    if cell.cell_type == "code":
        name = registered.name if registered else f"cell {cell.index}"
        made |= {"execution_count": None, "outputs": []}
        if name in marks and registered and registered.kind == "test":
            made["outputs"] = _outputs(marks[name])
        elif name in failed:
            made["outputs"] = _outputs(CellMark(name, 0.0, 1.0, failed[name] or "Error"))
    return made


def _outputs(mark: CellMark) -> list[dict[str, Any]]:
    """Return what the test printed, then an error for no points, or the number of points for a part of them."""
    printed, reason = clean(mark.printed, MAX_PRINTED), one_line(mark.error or "no points")
    fails = mark.points <= 0 < mark.max_points or (mark.points <= 0 and mark.error != "")
    is_part = mark.points < mark.max_points and not fails
    shown = [printed] if printed else []
    if is_part and mark.error:
        shown = [*shown, reason]
    outputs: list[dict[str, Any]] = [{"output_type": "stream", "name": "stdout", "text": text} for text in shown]
    if fails:
        kind, _, message = reason.partition(": ")
        if not kind.isidentifier():
            kind, message = "Error", reason
        return [*outputs, {"output_type": "error", "ename": kind, "evalue": message, "traceback": [reason]}]
    if is_part:
        number = {"text/plain": repr(mark.points)}
        return [*outputs, {"output_type": "execute_result", "data": number, "metadata": {}, "execution_count": None}]
    return outputs


def harmless(text: str) -> str:
    """Make HTML in Markdown inert: formgrader would run it, scripts included, in the grader's session.

    A word joiner, which has no width, parts what a browser would take for a tag, an entity or a script's address.
    Reference: https://html.spec.whatwg.org/multipage/parsing.html#tag-open-state

    Example:
        >>> harmless("a < b, <script>") == "a < b, <\u2060script>"
        True
    """
    for pattern in _ACTIVE:
        text = pattern.sub(rf"\1{_JOINER}\2", text)
    return text
