"""Tables of the instructor's pages, counted from the labs and from instructor/plans.toml whenever the site is built."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.errors import SphinxError
from sphinx.util.docutils import SphinxDirective

_HEAD = re.compile(r"\| (\d+) minutes \|")
_TITLE = re.compile(r"^#+ (.*)$", re.MULTILINE)
_TASK = re.compile(r"^\*(\d+) points · (\d+) minutes · (\S+)\*$", re.MULTILINE)


@dataclass(frozen=True)
class Task:
    name: str
    points: int
    minutes: int
    difficulty: str


@dataclass(frozen=True)
class Lab:
    """A lab as its notebook describes it: ``head_minutes`` is in the first cell, other times are beside the tasks."""

    name: str
    title: str
    head_minutes: int
    tasks: tuple[Task, ...]

    @property
    def minutes(self) -> int:
        return sum(task.minutes for task in self.tasks)

    def minutes_of(self, names: Sequence[str]) -> int:
        """Return the minutes of the named tasks, or of the whole lab if no task is named."""
        known = {task.name: task.minutes for task in self.tasks}
        if unknown := set(names) - set(known):
            raise SphinxError(f"plans.toml: {self.name} has no task {sorted(unknown)}, it has {sorted(known)}")
        return sum(known[name] for name in names) if names else self.minutes


def read_labs(folder: Path) -> dict[str, Lab]:
    """Return the labs by name, read from the students' notebooks."""
    return {path.stem[:5]: _read_lab(path) for path in sorted(folder.glob("lab*/lab*.ipynb"))}


def _read_lab(path: Path) -> Lab:
    cells = json.loads(path.read_text("utf-8"))["cells"]
    tasks, announced = [], None
    for cell in cells:
        source, nbgrader = "".join(cell["source"]), cell["metadata"].get("nbgrader", {})
        if cell["cell_type"] == "markdown":
            announced = _TASK.search(source) or announced
        elif nbgrader.get("solution"):
            if announced is None:
                raise SphinxError(f"{path}: nothing says how long {nbgrader['grade_id']} takes")
            tasks.append(Task(nbgrader["grade_id"], int(announced[1]), int(announced[2]), announced[3]))
            announced = None
    first = "".join(cells[0]["source"])
    head, title = _HEAD.search(first), _TITLE.search(first)
    if head is None or title is None:
        raise SphinxError(f"{path}: its first cell says no title or no minutes")
    return Lab(path.stem[:5], title[1], int(head[1]), tuple(tasks))


def hours(minutes: int) -> str:
    return f"{minutes // 60}:{minutes % 60:02}"


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def _chapters(numbers: Sequence[int], source: Path) -> str:
    pages = {int(path.stem[:2]): path.stem for path in (source / "chapters").glob("*.md")}
    return ", ".join(
        f"[{number}](../chapters/{pages[number]}.md)" if number in pages else str(number) for number in numbers
    )


def _lab_link(name: str, tasks: Sequence[str] = ()) -> str:
    named = ": " + ", ".join(f"`{task}`" for task in tasks) if tasks else ""
    return f"[{name[3:]}](../labs.md#{name}){named}"


def semester(plan: Sequence[dict[str, Any]], labs: dict[str, Lab], source: Path) -> str:
    """Return the table of weeks with their hours and a sum. A week's lab minutes are those of its tasks."""
    rows, sums = [], [0, 0, 0]
    for number, week in enumerate(plan, 1):
        lab = labs[week["lab"]].minutes_of(week.get("tasks", ())) if "lab" in week else 0
        parts = (week["class_minutes"], week["reading_minutes"], lab)
        sums = [total + part for total, part in zip(sums, parts, strict=True)]
        at = _lab_link(week["lab"], week.get("tasks", ())) if "lab" in week else ""
        rows.append((number, week["subject"], _chapters(week["chapters"], source), at, *map(hours, parts)))
    rows.append(("", "**together**", "", "", *(f"**{hours(total)}**" for total in sums)))
    return _table(("week", "subject", "chapters", "lab", "class", "reading", "lab, by its tasks"), rows)


def workshop(plan: Sequence[dict[str, Any]], labs: dict[str, Lab], source: Path) -> str:
    """Return the table of days in blocks, with the time of each block and each day."""
    rows: list[Sequence[object]] = []
    for number, day in enumerate(plan, 1):
        total = 0
        for block in day["block"]:
            if "lab" in block:
                minutes = labs[block["lab"]].minutes_of(block["tasks"])
                does = f"lab {_lab_link(block['lab'], block['tasks'])}"
            else:
                minutes, does = block["minutes"], block["talk"]
            total += minutes
            rows.append((number, does, _chapters(block.get("chapters", ()), source), hours(minutes)))
        rows.append(("", f"**{day['title']}**", "", f"**{hours(total)}**"))
    return _table(("day", "what", "chapters", "time"), rows)


def _subject(lab: Lab) -> str:
    return lab.title.split("·")[1].strip()


def _tasks(lab: Lab) -> str:
    rows = [(f"`{task.name}`", task.points, task.minutes, task.difficulty) for task in lab.tasks]
    return _table(("task", "points", "minutes", "difficulty"), rows)


def _all_labs(labs: Sequence[Lab]) -> str:
    rows: list[Sequence[object]] = [
        (_lab_link(lab.name), _subject(lab), len(lab.tasks), hours(lab.head_minutes), hours(lab.minutes))
        for lab in labs
    ]
    tasks, heads = sum(len(lab.tasks) for lab in labs), sum(lab.head_minutes for lab in labs)
    minutes = sum(lab.minutes for lab in labs)
    rows.append(("", "**together**", tasks, f"**{hours(heads)}**", f"**{hours(minutes)}**"))
    return _table(("lab", "subject", "tasks", "as its head says", "its tasks added up"), rows)


class LabTimes(SphinxDirective):
    """Insert the table of all labs with their minutes, or the tasks of the named lab."""

    optional_arguments = 1

    def run(self) -> list[nodes.Node]:
        labs = _labs(self)
        text = _tasks(labs[self.arguments[0]]) if self.arguments else _all_labs(list(labs.values()))
        return self.parse_text_to_nodes(text)


class Plan(SphinxDirective):
    """Insert the table ``semester`` or ``workshop`` of instructor/plans.toml."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        source = Path(self.env.srcdir)
        plans = source / "instructor" / "plans.toml"
        self.env.note_dependency(str(plans))
        plan = tomllib.loads(plans.read_text("utf-8"))[self.arguments[0]]
        make = {"semester": semester, "workshop": workshop}[self.arguments[0]]
        return self.parse_text_to_nodes(make(plan, _labs(self), source))


def _labs(directive: SphinxDirective) -> dict[str, Lab]:
    folder = Path(directive.env.srcdir).parent / "labs"
    for path in folder.glob("lab*/lab*.ipynb"):
        directive.env.note_dependency(str(path))
    return read_labs(folder)


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("lab-times", LabTimes)
    app.add_directive("plan", Plan)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
