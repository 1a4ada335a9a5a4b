"""Chapters by number: their cards on the home page, and the line below each chapter's heading."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from docutils import nodes
from plans import Lab, hours, read_labs
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from mlsys_labkit import drawings
from mlsys_labkit.drawings import svg

_WORDS_PER_MINUTE = 180  # of technical text in a second language
_CELL = re.compile(r"^```\{code-cell\}.*?^```", re.MULTILINE | re.DOTALL)
_FRONT_MATTER = re.compile(r"\A---\n.*?^---\n", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Chapter:
    """A chapter as its source describes it; ``drawing`` names the first of its drawings."""

    page: str
    title: str
    lead: str
    minutes: int
    labs: tuple[str, ...]
    drawing: str

    @property
    def number(self) -> int:
        return int(self.page[:2])


def read_chapters(folder: Path) -> list[Chapter]:
    """Return the chapters in order."""
    return [_read(path) for path in sorted(folder.glob("[0-9][0-9]_*.md"))]


def _read(path: Path) -> Chapter:
    text = _FRONT_MATTER.sub("", path.read_text("utf-8"))
    prose, cells = _CELL.sub("", text), _CELL.findall(text)
    title, lead = re.search(r"^# (.+)\n+((?:.+\n)+)", prose, re.MULTILINE).groups()
    drawn = re.search(r"lk\.drawings\.(\w+)\(", text)
    # A minute for each cell: to read its numbers, or to move its figure.
    minutes = len(prose.split()) / _WORDS_PER_MINUTE + len(cells)
    labs = sorted(set(re.findall(r"^\d+\. \[Lab (\d\d)\]", prose, re.MULTILINE)))
    return Chapter(
        page=path.stem,
        title=title,
        lead=_first_sentence(lead),
        minutes=5 * math.ceil(minutes / 5),
        labs=tuple(labs),
        drawing=drawn[1] if drawn else "",
    )


def _first_sentence(lead: str) -> str:
    plain = re.sub(r"\[([^]]+)\]\([^)]*\)|[*`$]", lambda found: found[1] or "", " ".join(lead.split()))
    return re.split(r"(?<=[.?!]) ", plain)[0]


def _card(chapter: Chapter) -> str:
    picture = ""
    if chapter.drawing:
        drawn = getattr(drawings, chapter.drawing)()
        picture = f'<div class="lk-drawing">{svg.without_words(drawn.height, drawn.parts)}</div>'
    labs = ", ".join(f'<a href="labs.html#lab{lab}">lab {lab}</a>' for lab in chapter.labs)
    return (
        f'<li class="card" data-page="{chapter.page}">{picture}'
        f'<h3><a href="chapters/{chapter.page}.html">{chapter.number} · {escape(chapter.title)}</a></h3>'
        f"<p>{escape(chapter.lead)}</p>"
        f'<p class="small"><span class="done" hidden>✓ read · </span>{chapter.minutes} minutes'
        f"{' · ' if labs else ''}{labs}</p></li>"
    )


class Cards(SphinxDirective):
    """Insert a card for each chapter."""

    def run(self) -> list[nodes.Node]:
        folder = Path(self.env.srcdir, "chapters")
        chapters = read_chapters(folder)
        for chapter in chapters:
            self.env.note_dependency(str(folder / f"{chapter.page}.md"))
        cards = "".join(map(_card, chapters))
        return [nodes.raw("", f'<style>{svg.STYLE}</style><ol class="cards">{cards}</ol>', format="html")]


def _step(lab: Lab) -> str:
    points = sum(task.points for task in lab.tasks)
    subject = lab.title.split("·")[1].strip()
    return (
        f'<li><a href="labs.html#{lab.name}">{escape(subject)}</a>'
        f'<span class="small">{len(lab.tasks)} tasks, {points} points, {hours(lab.head_minutes)} h</span></li>'
    )


class LabPath(SphinxDirective):
    """Insert the labs as a path, with their hours and points."""

    def run(self) -> list[nodes.Node]:
        folder = Path(self.env.srcdir).parent / "labs"
        for path in folder.glob("lab*/lab*.ipynb"):
            self.env.note_dependency(str(path))
        steps = "".join(map(_step, read_labs(folder).values()))
        return [nodes.raw("", f'<ol class="lab-path" start="0">{steps}</ol>', format="html")]


def _head(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    chapters = {f"chapters/{one.page}": one for one in read_chapters(Path(app.srcdir, "chapters"))}
    for side in ("prev", "next"):
        neighbour = context.get(side)
        at = re.search(r"\b(\d\d)_\w+\.html$", neighbour["link"]) if neighbour else None
        if at:
            context[side] = {**neighbour, "title": f"{int(at[1])} · {neighbour['title']}"}
    chapter = chapters.get(page)
    if chapter is None:
        return
    labs = "".join(f' · <a class="lab-button" href="../labs.html#lab{lab}">Lab {lab}</a>' for lab in chapter.labs)
    notebook = f'<a href="../notebooks/{chapter.page}.ipynb" download>This chapter as a notebook</a>'
    line = f'<p class="as-notebook">{chapter.minutes} minutes · {notebook}{labs}</p>'
    body = context["body"].replace("<h1>", f'<h1><span class="number">{chapter.number}</span> ', 1)
    context["body"] = body.replace("</h1>", f"</h1>{line}", 1)


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("chapter-cards", Cards)
    app.add_directive("lab-path", LabPath)
    app.connect("html-page-context", _head)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
