"""The instructor's pages say what the labs, their wrong answers and the kit say."""

from __future__ import annotations

import ast
import functools
import re
import tomllib
import unicodedata
from collections import Counter
from itertools import pairwise

import pytest

from mlsys_grading.lab import Lab, read_labs
from tests.conftest import ROOT
from tests.course.conftest import Site

COURSE = ROOT / "course"
PAGES = COURSE / "instructor"
README = (ROOT / "README.md").read_text("utf-8")
PLANS = tomllib.loads((PAGES / "plans.toml").read_text("utf-8"))
BUILT = pytest.mark.xdist_group("site")


@functools.cache
def labs() -> dict[str, Lab]:
    return {lab.name[:5]: lab for lab in read_labs(ROOT)}


def minutes(lab: Lab) -> dict[str, int]:
    """Return task -> minutes from the author's source, where a task's line of minutes stands above its solution."""
    found, told = {}, 0
    for cell in lab.cells:
        if said := re.search(r"\*\d+ points · (\d+) minutes", cell.source):
            told = int(said[1])
        if cell.is_solution:
            found[cell.grade_id] = told
    return found


def clock(text: str) -> int:
    hour, minute = text.split(":")
    return 60 * int(hour) + int(minute)


def cells(site: Site, page: str) -> list[list[str]]:
    """Return the rows of all tables of a page, as text."""
    source = (site.folder / f"{page}.html").read_text("utf-8")
    return [
        [re.sub(r"<[^>]+>", "", cell).strip() for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL)]
        for row in re.findall(r"<tr[^>]*>(.*?)</tr>", source, re.DOTALL)
    ]


# --- plans --------------------------------------------------------------------------------------------------------


def test_the_semester_treats_every_chapter_and_every_task_once() -> None:
    weeks = PLANS["semester"]
    assert len(weeks) == 16
    assert sorted(number for week in weeks for number in week["chapters"]) == list(range(14))
    done = Counter(
        (week["lab"], task)
        for week in weeks
        if "lab" in week
        for task in week.get("tasks") or minutes(labs()[week["lab"]])
    )
    assert done == Counter((name, task.name) for name, lab in labs().items() for task in lab.tasks)


def test_the_semester_keeps_the_order_of_the_chapters_labs() -> None:
    labs = [week["lab"] for week in PLANS["semester"] if "lab" in week]
    assert all(before <= after for before, after in pairwise(labs))


def test_no_week_of_the_semester_asks_for_too_much() -> None:
    for week in PLANS["semester"]:
        known = minutes(labs()[week["lab"]]) if "lab" in week else {}
        lab = sum(known[task] for task in week.get("tasks") or known)
        assert week["class_minutes"] + week["reading_minutes"] + lab <= 8 * 60, week["subject"]


def test_no_task_of_the_workshop_needs_one_that_is_skipped() -> None:
    blocks = [block for day in PLANS["workshop"] for block in day["block"] if "lab" in block]
    for name in {block["lab"] for block in blocks}:
        chosen = [task for block in blocks if block["lab"] == name for task in block["tasks"]]
        assert len(chosen) == len(set(chosen))
        tasks = {task.name: task for task in labs()[name].tasks}
        defined = {each: task for task, found in tasks.items() for each in _defined(found.solution.source)}
        for task in chosen:
            sources = [tasks[task].solution.source, *(test.source for test in tasks[task].tests)]
            needs = {defined[used] for source in sources for used in _used(source) if used in defined}
            assert needs <= set(chosen), f"{name}: {task} needs {needs - set(chosen)}"


def _tree(source: str) -> ast.Module:
    try:
        return ast.parse("\n".join(line for line in source.splitlines() if not line.lstrip().startswith(("%", "!"))))
    except SyntaxError:  # a C++ cell, which stands alone
        return ast.Module([], [])


def _defined(source: str) -> set[str]:
    return {node.name for node in _tree(source).body if isinstance(node, ast.FunctionDef | ast.ClassDef)}


def _used(source: str) -> set[str]:
    return {node.id for node in ast.walk(_tree(source)) if isinstance(node, ast.Name)}


@BUILT
def test_the_page_adds_the_semester_up(site: Site) -> None:
    rows = [row for row in cells(site, "instructor/plans") if len(row) == 7 and ":" in row[6]]
    *weeks, last = rows
    assert len(weeks) == 16
    for column in (4, 5, 6):
        assert clock(last[column]) == sum(clock(week[column]) for week in weeks)
    assert clock(last[6]) == sum(sum(minutes(lab).values()) for lab in labs().values())


@BUILT
def test_the_page_adds_each_day_up(site: Site) -> None:
    rows = [row for row in cells(site, "instructor/plans") if len(row) == 4 and ":" in row[3]]
    days, day = [], 0
    for number, what, _, time in rows:
        if number:
            day += clock(time)
        else:
            assert clock(time) == day, what
            days, day = [*days, day], 0
    assert len(days) == 3
    assert all(5 * 60 <= day <= 6.5 * 60 for day in days), days


@BUILT
def test_the_page_has_the_minutes_of_every_task(site: Site) -> None:
    rows = [row for row in cells(site, "instructor/plans") if len(row) == 4 and row[1].isdigit()]
    shown = {task: int(told) for task, _, told, _ in rows}
    assert shown == {task: told for lab in labs().values() for task, told in minutes(lab).items()}


def test_a_labs_head_and_its_tasks_agree_roughly() -> None:
    for name, lab in labs().items():
        head = re.search(r"\| (\d+) minutes \|", lab.cells[0].source)
        assert head is not None, name
        between = int(head[1]) - sum(minutes(lab).values())  # for the text, the predictions and the pictures
        assert 15 <= between <= 45, name


def test_all_pages_state_the_time_of_a_lab() -> None:
    words = {"an": 1, "two": 2, "three": 3, "four": 4, "ten": 10, "forty": 40}
    listed = dict(re.findall(r"^\| \[(\d\d) · .* \| (\d+[⅙⅓½⅔⅚]?) \| [^|]* \| [^|]* \|$", README, re.MULTILINE))
    course = (COURSE / "labs.md").read_text("utf-8").split("\n## Lab ")[1:]
    told = {
        part[:2]: re.findall(r"\. (\w+)( and a half)? hours?(?: and (\w+) minutes)?(?:\.| in|,)", part)
        for part in course
    }
    assert set(listed) == set(told) == {name[3:] for name in labs()}
    for name, lab in labs().items():
        text = lab.cells[0].source
        head = int(re.findall(r"\| (\d+) minutes \|", text)[0])
        listed_minutes = 60 * sum(unicodedata.numeric(sign) for sign in listed[name[3:]])
        ((hours, half, more),) = told[name[3:]]
        told_minutes = 60 * words[hours.lower()] + 30 * bool(half) + (words[more] if more else 0)
        assert max(abs(listed_minutes - head), abs(told_minutes - head)) <= 6, name
        sittings = list(map(int, re.findall(r"\((\d+) minutes\)", text)))
        assert not sittings or sum(sittings) == head, name


# --- misconceptions, projects, tutors -----------------------------------------------------------------------------


def test_misconceptions_are_those_of_known_wrong_answers() -> None:
    text = (PAGES / "misconceptions.md").read_text("utf-8")
    parts = re.split(r"^## Lab (\d\d) ", text, flags=re.MULTILINE)[1:]
    found = dict(zip(parts[::2], parts[1::2], strict=True))
    assert set(found) == {name[3:] for name in labs()}
    for number, part in found.items():
        pairs = re.findall(r"^\| `(\w+)`: `(\w+)` \| .+ \| .+ \|$", part, re.MULTILINE)
        known = {(wrong.task, wrong.name) for wrong in labs()[f"lab{number}"].wrong_answers}
        assert 3 <= len(pairs) <= 5
        assert set(pairs) <= known, sorted(set(pairs) - known)


def test_a_project_has_a_machine_a_deliverable_and_a_hundred_points() -> None:
    projects = re.split(r"^## \d+\. ", (PAGES / "projects.md").read_text("utf-8"), flags=re.MULTILINE)[1:]
    assert len(projects) == 8
    for project in projects:
        title = project.splitlines()[0]
        assert "**Machine:**" in project, title
        assert "**Deliverable:**" in project, title
        assert sum(int(points) for points in re.findall(r"\| (\d+) \|$", project, re.MULTILINE)) == 100, title


def test_verbs_and_files_that_are_named_exist() -> None:
    text = "\n".join(path.read_text("utf-8") for path in PAGES.glob("*.md"))
    verbs = set(re.findall(r"labkit ([a-z]+)", text))
    known = (ROOT / "grading" / "pyproject.toml").read_text("utf-8")
    assert verbs - {"doctor"} <= set(re.findall(r"^(\w+) = \"mlsys_grading", known, re.MULTILINE)), verbs
    for path in re.findall(r"`([\w/]+\.(?:md|toml))`", text):
        assert (ROOT / path).exists(), path


def test_the_tutors_ladder_is_the_kits() -> None:
    hints = [
        len(task.get("hints", ()))
        for path in (ROOT / "mlsys_labkit/coach/notes").glob("*.toml")
        for task in tomllib.loads(path.read_text("utf-8")).values()
        if isinstance(task, dict)
    ]
    assert max(hints) == 3
    assert "up to three rungs" in (PAGES / "tutors.md").read_text("utf-8")
