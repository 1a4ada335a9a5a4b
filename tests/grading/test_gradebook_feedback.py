"""Feedback pages: points, reasons and comments are there; the inputs of hidden tests are not, by any route."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from mlsys_grading.examine.plan import make_plan
from mlsys_grading.examine.run import examine_submission
from mlsys_grading.fork_server.client import ForkServer
from mlsys_grading.gradebook.counted_scores import CellStanding, Standing
from mlsys_grading.gradebook.feedback import feedback_page
from mlsys_grading.gradebook.gradebook import Gradebook
from mlsys_grading.gradebook.paths import SubmissionPaths
from mlsys_grading.gradebook.reasons import quotable, reason
from mlsys_grading.gradebook.registered import register
from mlsys_grading.gradebook.submission import match
from mlsys_grading.result import CellMark, Result
from tests.grading.gradebook_helpers import LAB, SECRET, SOURCE, answered, graded, lab, notebook, result, solution

REGISTERED = lab()
SUBMISSION = match(REGISTERED, answered({"double": "def double(x):\n    return '<b>&amp;'"}))


def standing(**cells: CellStanding) -> Standing:
    every = {each.name: CellStanding(0.0) for each in REGISTERED.cells} | cells
    return Standing(every, sum(each.score or 0 for each in every.values()), 0.0)


def page(made: Result, at: Standing | None = None) -> str:
    return feedback_page(REGISTERED, SUBMISSION, made, at or standing())


class Text(HTMLParser):
    """A parser that collects the visible text of a page and its elements."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.text, self.tags = "", set[str]()
        self._inside = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attributes: Any) -> None:
        self.tags.add(tag)
        self._inside = tag

    def handle_data(self, data: str) -> None:
        if self._inside not in ("style", "script"):
            self.text += f" {data} "


def read(html: str) -> str:
    return " ".join(Text(html).text.split())


def mark(name: str, **more: Any) -> CellMark:
    cell = REGISTERED[name]
    return CellMark(name, 0.0, cell.max_score, hidden=cell.hidden, **more)


FAILED = {"error": "AssertionError: 4 is not 5", "kinds": ("AssertionError", "Exception")}


def test_points_reasons_words_and_comments_are_there() -> None:
    made = result(
        failed_cells={"double": "NameError: name 'y' is not defined"}, oddities=("the cell halve is missing",)
    )
    double = mark("double_test", **FAILED, printed="one\n\x1b[31mtwo")
    made = replace(made, marks=(double, *made.marks[1:]), versions={"labkit": "0.1"})
    at = standing(
        double_more=CellStanding(2.0),
        halve_test=CellStanding(1.5),
        why=CellStanding(4.0, 0.25, is_manual=True, comment="Well said."),
        look=CellStanding(None, needs_manual_grade=True),
    )
    text = read(page(made, replace(at, late_penalty=2.0)))
    assert "5.5 of 27 points" in text
    assert "2 points taken off for handing in late" in text
    assert "7 points still to be given by a person" in text
    assert "Doubling double some points 2 / 5" in text
    assert "A result is not what the test expects. AssertionError: 4 is not 5 Your code printed one two Next" in text
    assert "NameError: name 'y' is not defined" in text
    assert "Comment Well said." in text
    assert "4.25 / 5 A person marked this." in text
    assert "return '<b>&amp;'" in text, "the answer, as it was written"
    assert "the cell halve is missing" in text
    assert "labkit 0.1" in text
    assert "b" not in Text(page(made, at)).tags


def smuggled(made: Result) -> Result:
    """Put the secret into every text of a result that student code controls, from the first hidden test on."""
    said = f"Value: {SECRET}"
    marks = [
        each
        if each.name == "double_test"
        else replace(each, points=0.0, error=said, printed=said, kinds=(SECRET, "ValueError"))
        for each in made.marks
    ]
    cells = {"halve": said, "draw": said, "cell 1": said, f"{SECRET}": said}
    return replace(made, marks=tuple(marks), failed_cells=cells)


def test_hidden_inputs_never_reach_the_page() -> None:
    assert SECRET in REGISTERED["double_more"].source
    assert SECRET not in page(smuggled(result()))
    replayed = replace(smuggled(result()), restarts=1, failed_cells={"double": f"Value: {SECRET}"})
    assert SECRET not in page(replayed), "a file that outlives its process carries it back before the hidden test"
    assert "hidden" in read(page(replace(result(), marks=(*result().marks[:1], mark("double_more", **FAILED)))))


def test_smuggled_text_is_quoted_without_hidden_tests() -> None:
    """A control: the same text is quoted where no test is hidden."""
    open_lab = register(LAB, notebook(solution("f", "pass"), graded("f_test", "f()", 1), graded("g_test", "f()", 1)))
    said = CellMark("g_test", 0.0, 1.0, error=f"Value: {SECRET}", printed=SECRET, kinds=("ValueError",))
    made = Result("job", LAB, "ada", (CellMark("f_test", 1.0, 1.0), said), failed_cells={"f": f"Value: {SECRET}"})
    html = feedback_page(open_lab, match(open_lab, None), made, Standing({}, 0.0, 0.0))
    assert html.count(SECRET) == 3
    assert quotable(open_lab, made) == {"f", "f_test", "g_test"}
    assert quotable(REGISTERED, result()) == {"helper", "double", "double_test"}


def test_no_source_of_a_test_is_on_the_page() -> None:
    for points in (None, {"double_test": 0.0, "double_more": 0.0, "halve_test": 0.0}):
        html = page(result(points=points))
        for each in REGISTERED.tests:
            assert not any(line in html for line in each.source.split("\n"))


@pytest.mark.parametrize(
    ("kinds", "words"),
    [
        (("CheckError", "AssertionError"), "not what the test expects"),
        (("NotImplementedError", "RuntimeError"), "not written yet"),
        (("StudentSilentError", "BoundaryError"), "took too long"),
        (("StudentGoneError",), "ended in the middle"),
        (("ContractError",), "changed an argument"),
        (("ZeroDivisionError", "ArithmeticError"), "raised ZeroDivisionError"),
        ((SECRET, "Exception"), "raised an error of its own kind"),
        ((), "was not reached"),
    ],
)
def test_every_kind_of_error_has_plain_words(kinds: tuple[str, ...], words: str) -> None:
    said = reason(CellMark("f_test", 0.0, 1.0, error="why", kinds=kinds), with_kind=True)
    assert words in said
    assert SECRET not in said


def test_kinds_of_errors_carry_no_hidden_input() -> None:
    """Code can raise one of many kinds by what a hidden test gave it: by its test, its cell, and cells of its own."""
    pages, names = set(), ("KeyError", "ValueError", "ZeroDivisionError", "OSError", "RecursionError", "MemoryError")
    for kind in names:
        marks = [replace(each, points=0.0, error=kind, kinds=(kind, "Exception")) for each in result().marks]
        marks[0] = result().marks[0]
        failed = {"halve": f"{kind}: x", "cell 1": f"{kind}: x"}
        pages.add(page(replace(result(), marks=tuple(marks), failed_cells=failed)))
    assert len(pages) == 1


def test_the_boundarys_errors_all_have_words() -> None:
    from mlsys_grading.boundary import errors

    kinds = [name for name, one in vars(errors).items() if isinstance(one, type) and one.__module__ == errors.__name__]
    for kind in kinds:
        if kind != "BoundaryError":
            assert "of its own kind" not in reason(CellMark("f_test", 0.0, 1.0, error="why", kinds=(kind,)))


def test_the_page_is_bounded_and_self_contained() -> None:
    marks = (mark("double_test", error="e" * 10**6, printed="p" * 10**7, kinds=("ValueError",)), *result().marks[1:])
    html = page(replace(result(), marks=marks))
    assert len(html) < 60_000
    assert "http" not in html.replace("http-equiv", "")
    assert "default-src 'none'" in html


def test_feedback_page_is_at_nbgraders_path(tmp_path: Path) -> None:
    assert SubmissionPaths.of(tmp_path, "ada", LAB).page == tmp_path / "feedback" / "ada" / LAB / f"{LAB}.html"


RELAY = """
kept = []
def double(x):
    kept.append(x)
    print("doubling", kept)
    return 2 * x if x < 8 else kept
"""
RELAYING = """
def halve(x):
    print("kept", kept)
    raise type("Kept" + "_".join(map(str, kept)), (Exception,), {})(repr(kept))
"""


@pytest.fixture(scope="module")
def server(fork_server: Callable[[Sequence[str]], ForkServer]) -> Iterator[ForkServer]:
    with fork_server([]) as made:
        yield made


@pytest.mark.skipif(sys.platform != "linux", reason="the fork server takes Linux")
@pytest.mark.xdist_group("sandbox")
def test_page_of_a_submission_that_relays_hidden_inputs_shows_none(server: ForkServer, tmp_path: Path) -> None:
    """The whole way: examined, written into the gradebook, read back, rendered."""
    number = "8317"
    source = notebook(*SOURCE["cells"])
    for each in source["cells"]:
        each["source"] = each["source"].replace(f"{SECRET} = 8", f"{SECRET} = {number}").replace("== 16", "== 16634")
    registered = register(LAB, source)
    handed_in = answered({"double": RELAY, "halve": RELAYING}, source)
    reference = examine_submission(server, make_plan(source["cells"], source["cells"]))
    assert reference.points == 7, reference.marks  # of 9: halve_test ends in a number, 2 of its 4 points
    examined = examine_submission(server, make_plan(source["cells"], handed_in["cells"]), reference.contract)
    assert any(number in verdict.error + verdict.printed for verdict in examined.marks), "the relay works"
    marks = tuple(replace(each, hidden=registered[each.name].hidden) for each in examined.marks)
    made = Result("job", LAB, "ada", marks, examined.failed_cells, restarts=examined.restarts)
    submission = match(registered, handed_in)
    with Gradebook(tmp_path / "gradebook.db") as book:
        book.register(registered)
        book.record(registered, submission, made)
        at = book.standing(registered, "ada")
    assert at is not None
    html = feedback_page(registered, submission, made, at)
    assert number not in html
    assert "doubling [2]" in read(html), "what was printed before any hidden test"
    assert "3 of 27 points" in read(html)
