"""The feedback page as a student meets it: the order of its parts, by keyboard, on paper, and without a network."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from mlsys_grading.gradebook.counted_scores import CellStanding, Standing
from mlsys_grading.gradebook.feedback import feedback_page
from mlsys_grading.gradebook.registered import register
from mlsys_grading.gradebook.said import CheckMessage, check_message
from mlsys_grading.gradebook.submission import match
from mlsys_grading.lab.asked import since_heading
from mlsys_grading.page.markdown import to_html
from mlsys_grading.page.render import stylesheet
from mlsys_grading.result import CellMark, Result
from mlsys_labkit._frontends.page import look
from mlsys_labkit.checks.message import failure
from tests.grading.gradebook_helpers import LAB, answered, cell, graded, notebook, solution

SCRIPT = "<script>alert(1)</script>"
SOURCE = notebook(
    cell("# Part one\n\nAn introduction.\n\n## Task 1 · Doubling\n\nDouble the *number* $x_1$.", kind="markdown"),
    cell("LIMIT = 3", "helper", locked=True),
    cell("Zero stays zero; see [chapter 5](../course/05.md).", kind="markdown"),
    solution("double", "return 2 * x"),
    graded("double_test", "assert double(2) == 4", 3),
    graded("double_zero", "assert double(0) == 0", 2),
    cell("## Task 2 · Halving", kind="markdown"),
    solution("halve", "return x / 2"),
    graded("halve_test", "assert halve(2) == 1", 5),
    cell("## Task 3 · Words", kind="markdown"),
    cell("Say why.", "why", kind="markdown", grade=True, solution=True, points=5),
)
REGISTERED = register(LAB, SOURCE)
WRONG = f"def double(x):\n    return '{SCRIPT}'  # </pre>{SCRIPT}"


def page(student: str = "ada", **points: float) -> str:
    """Render the page of a student who lost ``double_test`` and got what ``points`` says for the other cells."""
    said = " ".join(str(failure(f"{SCRIPT}: wrong value", expected="4", actual="5", next_step="count again")).split())
    failed = CellMark("double_test", 0.0, 3.0, f"CheckError: {said}", ("CheckError", "AssertionError"), SCRIPT)
    marks = (failed, CellMark("double_zero", 2.0, 2.0), CellMark("halve_test", 5.0, 5.0))
    cells = {"double_test": CellStanding(0.0), "double_zero": CellStanding(2.0), "halve_test": CellStanding(5.0)}
    cells |= {"why": CellStanding(None, needs_manual_grade=True)}
    cells |= {name: CellStanding(score) for name, score in points.items()}
    standing = Standing(cells, sum(each.score or 0 for each in cells.values()), 0.0)
    written = {"double": WRONG, "halve": "def halve(x):\n    return x / 2", "why": f"Because {SCRIPT}"}
    submission = match(REGISTERED, answered(written, SOURCE))
    made = Result("job", LAB, student, marks, {"cell 1": f"ValueError: {SCRIPT}"}, (f"odd: {SCRIPT}",))
    return feedback_page(REGISTERED, submission, made, standing)


def main(html: str) -> ElementTree.Element:
    return ElementTree.fromstring(html[html.index("<main") : html.index("</main>") + len("</main>")])


def words(element: ElementTree.Element) -> str:
    return " ".join(" ".join(element.itertext()).split())


def test_a_task_shows_what_was_asked_written_and_found_and_the_next_step() -> None:
    (card,) = main(page()).findall(".//article[@id='task-1']")
    text = words(card)
    parts = ["Task 1 · Doubling double some points 2 / 5"]
    parts += ["What was asked Double the number", "Zero stays zero; see chapter 5.", "What you wrote def double(x):"]
    parts += ["What the tests found no points double_test 0 / 3 A result is not what the test expects."]
    parts += [f"Check {SCRIPT}: wrong value Expected 4 Your result 5", "Your code printed", "Next count again"]
    parts += ["full points double_zero 2 / 2"]
    places = [text.find(part) for part in parts]
    assert -1 not in places, dict(zip(parts, places, strict=True))
    assert places == sorted(places)
    assert "introduction" not in text, "only the text since the task's own heading"
    assert card.find(".//{*}msub") is not None, "a formula is drawn"


def test_tasks_that_lost_points_come_first_and_points_stand_at_the_top() -> None:
    html = page()
    assert html.index("<h1") < html.index("<table")
    assert re.search(r"<h1[^>]*>7<span[^>]*> of 15 points", html)
    assert re.findall(r'<h2 id="group-\d">([^<]*)', html) == [
        "Tasks that lost points",
        "Tasks that wait for a person",
        "Tasks with full points",
    ]
    assert re.findall(r'id="title-(\d)"', html) == ["1", "3", "2"]
    assert [words(row) for row in main(html).findall(".//tbody/tr")] == [
        "Task 1 · Doubling double some points 2 / 5",
        "Task 2 · Halving halve full points 5 / 5",
        "Task 3 · Words why waits for a person 0 / 5",
    ]
    assert "1 of 3 tasks has full points. 1 task lost points" in words(ElementTree.fromstring(_lead(html)))
    everything = page(double_test=3.0, why=5.0)
    assert "Every task has full points. Well done." in everything
    assert re.findall(r'<h2 id="group-\d">([^<]*)', everything) == ["Tasks with full points"]


def _lead(html: str) -> str:
    return html[html.index('<p class="lead">') : html.index("</p>", html.index('<p class="lead">')) + 4]


def test_a_stub_is_named_once_and_without_a_comment_that_repeats_it() -> None:
    unwritten = {"error": "NotImplementedError", "kinds": ("NotImplementedError", "RuntimeError")}
    marks = tuple(CellMark(each.name, 0.0, each.max_score, **unwritten) for each in REGISTERED.tests)
    cells = {each.name: CellStanding(0.0, comment="No response.") for each in REGISTERED.cells}
    stubs = match(REGISTERED, answered({}, SOURCE))
    html = feedback_page(REGISTERED, stubs, Result("job", LAB, "ada", marks), Standing(cells, 0.0, 0.0))
    text = words(main(html).find(".//article[@id='task-1']"))
    assert "What you wrote Nothing yet: the cell is as the lab gave it." in text
    assert text.endswith(
        "What the tests found no points double_test 0 / 3 no points double_zero 0 / 2 This part is not written yet. "
        "Next Write it for one small case first, then run the tests below it."
    )
    assert "No response" not in html
    written = match(REGISTERED, answered({"double": WRONG, "halve": WRONG, "why": "I"}, SOURCE))
    html = feedback_page(REGISTERED, written, Result("job", LAB, "ada", marks), Standing(cells, 0.0, 0.0))
    assert html.count("No response") == 3, "a person's comment on a written answer stays"


def test_hints_are_offered_for_tasks_that_have_some_and_lost_points() -> None:
    from mlsys_grading.build.notebook import source_notebook
    from mlsys_grading.lab import read_lab

    lab = read_lab(Path(__file__).parents[2], "lab00_your_machine")
    registered = register(lab.name, source_notebook(lab))
    cells = {each.name: CellStanding(each.max_score) for each in registered.cells}
    cells["bound_test"] = CellStanding(0.0)
    marks = tuple(CellMark(each.name, cells[each.name].score or 0.0, each.max_score) for each in registered.tests)
    html = feedback_page(
        registered, match(registered, None), Result("job", lab.name, "ada", marks), Standing(cells, 96.0, 0.0)
    )
    assert re.findall(r'lk\.hint\("(\w+)"\)', html) == ["bound"]
    assert "lk.hint" not in page(), "this lab has no hints"


def test_scripts_in_names_answers_messages_and_prints_are_text() -> None:
    html = page(f"ada {SCRIPT}")
    assert html.count("<script") == 1, "the page's own, which switches the theme"
    assert "alert(1)" not in html[html.index("<script>") : html.index("</script>")]
    assert html.count("&lt;script&gt;alert(1)") >= 7
    main(html)  # well-formed


@pytest.mark.parametrize(
    ("message", "parts"),
    [
        (failure("y: wrong", expected="1", actual="2", meaning="one more", next_step="n"), ("1", "2", "one more", "n")),
        (failure("y: wrong", actual="2"), ("", "2", "", "")),
        (failure("y: wrong", next_step="expected or actual"), ("", "", "", "expected or actual")),
        (failure("y: wrong"), ("", "", "", "")),
    ],
)
def test_a_checks_message_is_read_in_parts(message: Exception, parts: tuple[str, ...]) -> None:
    assert check_message(" ".join(str(message).split())) == CheckMessage("y: wrong", *parts)


def test_a_message_that_quotes_labels_loses_no_word() -> None:
    line = "x: wrong text expected a next b actual c meaning d expected e"
    found = check_message(line)
    labels = zip(("", "expected", "actual", "meaning", "next"), vars(found).values(), strict=True)
    assert " ".join(f"{label} {part}".strip() for label, part in labels if part) == line


def test_the_text_of_a_task_begins_at_its_heading() -> None:
    assert since_heading("no heading") == ("", "no heading")
    assert since_heading("# A\n\n```\n# code\n```\n") == ("A", "```\n# code\n```")
    assert REGISTERED["double"].asked.startswith("Double the *number*")
    assert REGISTERED["double_zero"].asked == "", "it belongs to the task above it"
    assert (REGISTERED["halve"].heading, REGISTERED["halve"].asked) == ("Task 2 · Halving", "")
    assert REGISTERED["helper"].asked == ""


def test_markdown_of_a_lab_loads_nothing() -> None:
    html = to_html(f"![a picture](x.png) {SCRIPT} [site](https://example.org) [file](../a.md) [id](#b)")
    assert "a picture" in html
    assert "<img" not in html
    assert "<script" not in html
    assert re.findall('href="([^"]*)"', html) == ["https://example.org"]


def test_all_pages_of_grading_share_one_stylesheet() -> None:
    style = re.search("<style>(.*?)</style>", page(), re.DOTALL)
    assert style
    assert style[1] == stylesheet()
    assert look.stylesheet().split("}", 1)[1][:200] in style[1], "the kit's shapes and text come first"
    assert not re.search(r"url\(|@import|#[0-9a-f]{3,6}\b(?![^{]*\blight-dark)", style[1].split("}", 1)[1])


@pytest.fixture
def tab(browser: Any, tmp_path: Path) -> Iterator[Any]:
    path = tmp_path / f"{LAB}.html"
    path.write_text(page(), encoding="utf-8")
    opened, troubles = browser.new_page(viewport={"width": 390, "height": 844}), []
    opened.on("console", lambda message: troubles.append(message.text))
    opened.on("pageerror", lambda error: troubles.append(str(error)))
    opened.on("request", lambda request: troubles.append(request.url) if "file:" not in request.url else None)
    opened.goto(path.as_uri())
    yield opened
    opened.close()
    assert troubles == []


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_feedback_page_is_accessible(tab: Any, scheme: str) -> None:
    tab.emulate_media(color_scheme=scheme)
    background = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(18, 20, 23)") == (scheme == "dark")
    tab.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    for width in (1280, 320):
        tab.set_viewport_size({"width": width, "height": 640})
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
        # The page's policy forbids scripts, except those of the browser's driver.
        tab.evaluate((files("axe_playwright_python") / "axe.min.js").read_text("utf-8"))
        found = tab.evaluate("axe.run().then(result => result.violations)")
        assert [(each["id"], each["nodes"][0]["html"]) for each in found] == []


@pytest.mark.browser
def test_a_folded_task_opens_by_its_link_and_by_keyboard(tab: Any) -> None:
    is_open = "document.querySelector('details.card').open"
    assert not tab.evaluate(is_open)
    tab.focus("a[href='#task-2']")
    tab.keyboard.press("Enter")
    tab.wait_for_function(is_open)
    tab.focus("details.card > summary")
    tab.keyboard.press("Enter")
    assert not tab.evaluate(is_open)


@pytest.mark.browser
def test_paper_shows_every_answer_and_no_button(tab: Any) -> None:
    shown = "name => document.querySelector(name).checkVisibility()"
    answer = "details.card .lines"
    assert not tab.evaluate(shown, answer)
    assert tab.evaluate(shown, ".theme")
    tab.emulate_media(media="print", color_scheme="dark")
    tab.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert tab.evaluate(shown, answer)
    assert not tab.evaluate(shown, ".theme")
    assert tab.evaluate("getComputedStyle(document.documentElement).colorScheme") == "light"
