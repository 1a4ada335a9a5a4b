"""Chapters as cells, and what a test counts in them."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import jupytext

from tests.conftest import ROOT

COURSE = ROOT / "course"
PATHS = sorted((COURSE / "chapters").glob("*.md"))
NAMES = [path.stem for path in PATHS]
_FIGURE = re.compile(r"lk\.(?:drawings|widgets)\.(?!answer\b|prediction\b)\w+\(")
_LISTING = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
_LABEL = re.compile(r"^\(([\w-]+)\)=\s*$", re.MULTILINE)
_HEADING = re.compile(r"^(#{1,4}) (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Exercise:
    """One numbered line of a chapter's exercises."""

    text: str
    answered: bool

    @property
    def has_task(self) -> bool:
        """Tell whether a task of a lab checks it."""
        return "lab" in self.text.lower() and re.search(r"tasks? `\w+`", self.text) is not None


@dataclass(frozen=True)
class Part:
    """The text and cells between one label of a page and the next label, or next heading of the label's rank."""

    label: str
    text: str

    @property
    def words(self) -> int:
        return len(_LISTING.sub("", self.text).split())

    @property
    def teaches(self) -> bool:
        """Tell whether there is a formula set apart, or a cell: a figure, numbers, or a program that runs."""
        return re.search(r"^\$\$|^```\{code-cell", self.text, re.MULTILINE) is not None

    @property
    def shows(self) -> bool:
        """Tell whether there is a table, a listing, or a paragraph long enough for an explanation."""
        return self.teaches or self.words >= 80 or re.search(r"^\||^```", self.text, re.MULTILINE) is not None


def rows() -> list[dict[str, Any]]:
    """Return the rows of the coverage: subjects, and where each is treated."""
    return list(tomllib.loads((COURSE / "coverage.toml").read_text("utf-8"))["row"])


def source(name: str) -> str:
    return (COURSE / f"chapters/{name}.md").read_text("utf-8")


def drawings(text: str) -> set[str]:
    """Return the names of the static drawings that a chapter shows."""
    return set(re.findall(r"lk\.drawings\.(\w+)\(", text))


def exercises(text: str) -> list[Exercise]:
    """Return the exercises of a chapter; each ends where the next begins."""
    section = text.split("\n## Exercises\n")[1].split("\n## ")[0]
    pieces = re.split(r"^\d+\. ", section, flags=re.MULTILINE)[1:]
    return [Exercise(piece.split("\n\n")[0], "lk.widgets.answer(" in piece) for piece in pieces]


def longest_way(text: str) -> tuple[int, str]:
    """Return the most words between two figures of a chapter before its exercises, and where they begin."""
    notebook = jupytext.reads(text.split("\n## Exercises\n")[0], fmt="md:myst")
    places, words = [(0, "the beginning")], 0
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            words += len(_LISTING.sub("", cell.source).split())
        elif _FIGURE.search(cell.source):
            places.append((words, cell.source.strip().splitlines()[-1][:60]))
    places.append((words, "the end"))
    return max(((after - before, said) for (before, said), (after, _) in pairwise(places)), default=(0, ""))


def shown_code(text: str) -> list[str]:
    """Return the lines of the cells whose code a reader sees."""
    cells = jupytext.reads(text, fmt="md:myst").cells
    hidden = {"remove-input", "remove-cell", "hide-input", "hide-cell"}
    shown = [cell for cell in cells if cell.cell_type == "code" and not hidden & set(cell.metadata.get("tags", ()))]
    return [line for cell in shown for line in cell.source.splitlines()]


def parts(page: Path) -> dict[str, Part]:
    """Return what stands at each label and heading of a page, by anchor."""
    text = page.read_text("utf-8")
    marks = [(found.start(), found.end(), found[1], 9) for found in _LABEL.finditer(text)]
    marks += [(found.start(), found.end(), _slug(found[2]), len(found[1])) for found in _HEADING.finditer(text)]
    marks.sort()
    found: dict[str, Part] = {}
    for at, (_, end, name, rank) in enumerate(marks):
        following = marks[at + 1 :]
        if rank == 9 and following and not text[end : following[0][0]].strip():
            rank, following = following[0][3], following[1:]  # the label of a heading
        stop = next((start for start, _, _, other in following if other == 9 or other <= rank), len(text))
        found.setdefault(name, Part(name, text[end:stop]))
    return found


def _slug(heading: str) -> str:
    return re.sub(r"[^\w -]", "", heading.lower()).strip().replace(" ", "-")
