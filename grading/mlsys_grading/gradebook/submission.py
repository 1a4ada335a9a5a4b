"""A submission matched with its lab: which submitted cell belongs to which cell of the lab. Metadata is not trusted.

As in nbgrader, the last of two cells with one name counts, a locked cell's text is the lab's own, and names that are
not the lab's are ignored. Unlike nbgrader, no content of a notebook is an error, a missing cell is restored at its
place, and the total size is bounded.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from mlsys_grading.gradebook.registered import RegisteredCell, RegisteredLab
from mlsys_grading.gradebook.text import clean

MAX_OWN_CELLS = 1_000
MAX_CELL_CHARACTERS = 200_000
MAX_CHARACTERS = 4_000_000
_BASE64 = re.compile(r"[A-Za-z0-9+/=\n]*")
_PICTURES = ("image/png", "image/jpeg", "image/gif")  # not SVG, which carries scripts


@dataclass(frozen=True)
class SubmittedCell:
    """One cell of a submission.

    Attributes:
        registered: the lab's cell that this is; None for a cell of the student's own.
        text: what counts: the lab's for a locked cell, the student's for others.
        index: its place in the submission; -1 if it is missing there.
        attachments: pictures pasted into Markdown, as nbformat has them.
    """

    registered: RegisteredCell | None
    cell_type: Literal["code", "markdown", "raw"]
    text: str
    index: int
    attachments: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def is_missing(self) -> bool:
        return self.index < 0

    @property
    def is_untouched(self) -> bool:
        """True for an answer that is still the stub; nbgrader compares checksums of the same text."""
        return self.registered is not None and self.text == self.registered.source


def match(lab: RegisteredLab, submission: Mapping[str, Any] | None) -> tuple[SubmittedCell, ...]:
    """Return the submission's cells in order, with the lab's cells that it lacks in their places.

    Args:
        submission: the notebook as JSON has it, hostile or not; None if none could be read.

    Example:
        >>> [cell.is_missing for cell in match(RegisteredLab("lab00", ()), {"cells": [{"cell_type": "code"}]})]
        [False]
    """
    raw = submission.get("cells") if isinstance(submission, Mapping) else None
    given = [cell for cell in raw if isinstance(cell, Mapping)] if isinstance(raw, Sequence) else []
    known = {cell.name: cell for cell in lab.cells}
    last = {name: index for index, cell in enumerate(given) if (name := _name(cell)) in known}
    budget, own, cells = MAX_CHARACTERS, 0, []
    for index, cell in enumerate(given):
        name = _name(cell)
        registered = known[name] if last.get(name) == index else None
        own += registered is None
        if registered is None and own > MAX_OWN_CELLS:
            continue
        if registered and registered.is_locked:
            cells.append(SubmittedCell(registered, registered.cell_type, registered.source, index))
            continue
        text = _text(cell, budget)
        budget -= len(text)
        kind = registered.cell_type if registered else _cell_type(cell)
        pictures = _pictures(cell, budget) if kind == "markdown" else {}
        budget -= sum(len(data) for picture in pictures.values() for data in picture.values())
        cells.append(SubmittedCell(registered, kind, text, index, pictures))
    return tuple(_put_back(lab, last, cells))


def _put_back(lab: RegisteredLab, there: Mapping[str, int], cells: list[SubmittedCell]) -> list[SubmittedCell]:
    at = 0
    for cell in lab.cells:
        if cell.name in there:
            at = next(i for i, each in enumerate(cells) if each.registered is cell) + 1
        else:
            cells.insert(at, SubmittedCell(cell, cell.cell_type, cell.source if cell.is_locked else "", -1))
            at += 1
    return cells


def _name(cell: Mapping[str, Any]) -> str:
    metadata = cell.get("metadata")
    found = metadata.get("nbgrader") if isinstance(metadata, Mapping) else None
    name = found.get("grade_id") if isinstance(found, Mapping) else None
    return name if isinstance(name, str) else ""


def _text(cell: Mapping[str, Any], budget: int) -> str:
    source = cell.get("source")
    if isinstance(source, list):
        source = "".join(line for line in source if isinstance(line, str))
    return clean(source, min(budget, MAX_CELL_CHARACTERS)) if isinstance(source, str) else ""


def _cell_type(cell: Mapping[str, Any]) -> Literal["code", "markdown", "raw"]:
    kind = cell.get("cell_type")
    return kind if kind in ("code", "markdown") else "raw"


def _pictures(cell: Mapping[str, Any], budget: int) -> dict[str, dict[str, str]]:
    found = cell.get("attachments")
    pictures = {}
    for name, bundle in found.items() if isinstance(found, Mapping) else ():
        kept = {
            kind: data
            for kind, data in (bundle.items() if isinstance(bundle, Mapping) else ())
            if kind in _PICTURES and isinstance(data, str) and _BASE64.fullmatch(data)
        }
        budget -= sum(map(len, kept.values()))
        if kept and isinstance(name, str) and budget >= 0:
            pictures[clean(name, 200)] = kept
    return pictures
