"""The README that students get: two commands to start, and one row per lab."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from mlsys_grading.lab import Lab
from mlsys_grading.release.links import codespace_badge
from mlsys_grading.release.settings import ReleaseSettings

_FACTS = re.compile(r"^\| *time *\|.*\n\|[-| ]+\n\|(?P<values>.*)\|$", re.MULTILINE)  # the table of a lab's first cell


@dataclass(frozen=True)
class LabRow:
    """One row of the table of labs."""

    title: str
    path: str
    time: str
    difficulty: str
    hardware: str
    memory: str
    badges: str


def row_of(lab: Lab, path: str, memory: str, badges: str) -> LabRow:
    """Make a lab's row; title, time, difficulty and hardware are read from its first cell, or stay empty."""
    head = lab.cells[0].source
    facts = _FACTS.search(head)
    values = [each.strip() for each in facts["values"].split("|")] if facts else []
    time, difficulty, hardware = [*values, "", "", ""][:3]
    title = head.partition("\n")[0].removeprefix("# ").removeprefix("Lab ").strip()
    return LabRow(title, path, time, difficulty, hardware.partition(";")[0], memory, badges)


def readme(rows: Sequence[LabRow], settings: ReleaseSettings, version: str) -> bytes:
    """Return the text of README.md."""
    folder = Path(__file__).parent / "templates"
    # Without escaping: the page is Markdown, and no value is a user's.
    pages = Environment(
        loader=FileSystemLoader(folder), undefined=StrictUndefined, trim_blocks=True, keep_trailing_newline=True
    )
    text = pages.get_template("README.md.j2").render(
        labs=rows,
        memory=any(row.memory for row in rows),
        badges=any(row.badges for row in rows),
        codespace=codespace_badge(settings),
        hub=settings.hub,
        questions=settings.questions,
        version=version,
    )
    return text.encode("utf-8")
