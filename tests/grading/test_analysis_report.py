"""The report on a small class: every figure was counted on paper, and explanations quote answers and failures."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.resources import files
from typing import Any

import pytest

from mlsys_grading.analysis.explain import explain
from mlsys_grading.analysis.misconceptions import Sign, canonical, profile, resemblances, sign
from mlsys_grading.analysis.report import class_report
from mlsys_grading.lab import Lab, read_lab
from mlsys_grading.result import CellMark, Result
from mlsys_labkit.errors import LabkitError
from tests.grading.course import FIXTURE, LAB

RIGHT = "def scaled(x, factor):\n    return np.array(x, dtype=float) * factor"
SIGN_LOST = '''def scaled(values, by):
    """My own."""
    # the same as sign_lost, but for names
    return (np.array(values, dtype=np.float64)
            * abs(by))'''
IN_PLACE_ALIKE = "def scaled(x, factor):\n    for i in range(len(x)):\n        x[i] *= factor\n    return x"
UNKNOWN = "def scaled(x, factor):\n    return [factor] * len(x)"
TALLY = """class Tally:
    def __init__(self):
        self.c = {}

    def see(self, t):
        self.c[t] = self.c.get(t, 0) + 1
        return self.c[t]"""
NASTY = "<script>alert(1)</script>\x1b[31m"


@pytest.fixture(scope="module")
def lab() -> Lab:
    return read_lab(FIXTURE, LAB)


def mark(name: str, points: float, most: float, kind: str = "", seconds: float = 0.0) -> CellMark:
    error = f"{kind}: {NASTY} secret 8317" if kind else ""
    return CellMark(name, points, most, error, (kind, "Exception") if kind else (), f"{NASTY}\n", seconds, bool(kind))


def result(student: str, scaled: str = "", empty: str = "", tally: str = "", seconds: float = 1.0) -> Result:
    """Build a result in which each test passes, or fails with the kind of error that is named."""
    marks = (
        mark("scaled_test", 0 if scaled else 40, 40, scaled, seconds),
        mark("scaled_test_empty", 0 if empty else 10, 10, empty),
        mark("Tally_test", 0 if tally else 50, 50, tally, 0.5),
    )
    return Result(f"job-{student}", LAB, student, marks)


def cells(lab: Lab, **answers: str) -> list[dict[str, Any]]:
    """Return a submission's cells; a task without an answer keeps its stub."""
    from mlsys_grading.build.notebook import unsolved_notebook

    stubs = [str(cell.source) for cell in unsolved_notebook(lab).cells]
    return [
        {"cell_type": cell.kind, "source": answers.get(cell.grade_id, stub), "metadata": dict(cell.metadata)}
        for cell, stub in zip(lab.cells, stubs, strict=True)
    ]


@pytest.fixture(scope="module")
def results() -> list[Result]:
    wrong = "AssertionError"
    return [
        result("ada", seconds=1),
        result("bob", scaled=wrong, seconds=2),
        result("cy", scaled=wrong, seconds=3),
        result("dan", scaled=wrong, empty="IndexError", seconds=4),
        result("eve", scaled=wrong, empty="IndexError", tally=wrong, seconds=5),
        result("fay", scaled=wrong, empty="IndexError", tally="KeyError", seconds=6),
        result("gus", "NotImplementedError", "NotImplementedError", "NotImplementedError", seconds=0),
        Result("job-hal", LAB, "hal", (), status="infrastructure", why="the machine went away"),
    ]


@pytest.fixture(scope="module")
def submissions(lab: Lab) -> dict[str, list[dict[str, Any]]]:
    return {
        "ada": cells(lab, scaled=RIGHT, Tally=TALLY),
        "bob": cells(lab, scaled=SIGN_LOST, Tally=TALLY),
        "cy": cells(lab, scaled=IN_PLACE_ALIKE, Tally=TALLY),
        "dan": cells(lab, scaled=UNKNOWN, Tally=TALLY),
        "eve": cells(lab, scaled=UNKNOWN.replace("x", "xs"), Tally="class Tally:\n    pass"),
        "fay": cells(lab, scaled=UNKNOWN.replace("factor", "by"), Tally=TALLY.replace("get(t, 0)", "get(t)")),
        "gus": cells(lab),
    }


# The profile of the marks of ``mark``; sign_lost fails the same test with other results.
SAID = f"{NASTY} secret 8317"
PROFILES = {
    ("scaled", "in_place"): {"scaled_test": sign("AssertionError", f"AssertionError: {SAID}")},
    ("scaled", "sign_lost"): {"scaled_test": Sign("AssertionError", "AssertionError: expected -2 actual 2")},
    ("Tally", "no_start"): {"Tally_test": Sign("KeyError", "KeyError: 3")},
}


def test_report_figures_equal_counts_by_hand(lab: Lab, results: list[Result], submissions: Any) -> None:
    report = class_report(lab, results, submissions, PROFILES)
    assert (report.students, report.ungraded, report.points) == (7, 1, 100.0)
    assert report.mean == pytest.approx((100 + 60 + 60 + 50 + 0 + 0 + 0) / 7)
    assert report.median == 50.0
    assert [(one.low, one.high, one.students) for one in report.histogram if one.students] == [
        (0.0, 10.0, 3),
        (50.0, 60.0, 1),
        (60.0, 70.0, 2),
        (90.0, 100.0, 1),
    ]
    hardest, easier = report.tasks
    assert (hardest.name, hardest.title, hardest.points, hardest.unanswered) == ("scaled", "Scale", 50.0, 1)
    assert (hardest.full, hardest.part, hardest.none, hardest.lost, hardest.recognised) == (1, 2, 4, 6, 2)
    assert hardest.mean == pytest.approx(70 / 7)
    assert hardest.share == pytest.approx(0.2)
    assert (hardest.median_seconds, hardest.slow_seconds) == (3.0, 6.0)
    assert (easier.name, easier.full, easier.part, easier.none, easier.median_seconds) == ("Tally", 4, 0, 3, 0.5)
    assert [(one.why, one.kind, one.students) for one in hardest.failures] == [
        ("A result is not what the test expects.", "AssertionError", 5),
        ("The code raised IndexError.", "IndexError", 3),
        ("This part is not written yet.", "NotImplementedError", 1),
    ]
    assert [(e.task, e.name, e.same_code, e.same_results, e.same_failures) for e in report.common] == [
        ("scaled", "", 3, 0, 0),
        ("scaled", "in_place", 0, 1, 0),
        ("scaled", "sign_lost", 1, 0, 0),
        ("Tally", "no_start", 0, 0, 1),
    ]
    assert report.common[0].source == UNKNOWN
    assert report.common[2].misconception == "a factor is never negative"
    plain = json.dumps(report.to_json())
    assert json.loads(plain)["tasks"][0]["failures"][0]["students"] == 5
    assert "secret" not in plain
    assert '"ada"' not in plain


def test_report_without_submissions_has_only_marks(lab: Lab, results: list[Result]) -> None:
    report = class_report(lab, results)
    assert report.common == ()
    assert report.tasks[0].unanswered is None
    with pytest.raises(LabkitError, match="nothing was graded"):
        class_report(lab, results[-1:])
    with pytest.raises(LabkitError, match="ada has two results"):
        class_report(lab, [*results, results[0]])


def test_resemblance_names_exactly_the_wrong_answer(lab: Lab) -> None:
    for wrong in lab.wrong_answers:
        task = next(task for task in lab.tasks if task.name == wrong.task)
        found = resemblances(lab, task, f"# mine\n{wrong.source}\n", {"a test": Sign("AssertionError", "")})
        assert [(like.wrong, like.how) for like in found] == [(wrong.name, "same code")]
    assert resemblances(lab, lab.tasks[0], SIGN_LOST, {}) == ()  # it passes: no misconception
    marks = (mark("scaled_test", 0, 40, "TypeError"), mark("Tally_test", 0, 50, "KeyError"))
    assert profile(lab.tasks[0], marks) == {"scaled_test": sign("TypeError", f"TypeError: {SAID}")}


def test_failures_shared_by_wrong_answers_name_none(lab: Lab) -> None:
    task, failures = lab.tasks[0], {"scaled_test": Sign("AssertionError", "expected 1 actual 2")}

    def found(**said: str) -> list[tuple[str, str]]:
        profiles = {("scaled", name): {"scaled_test": Sign("AssertionError", words)} for name, words in said.items()}
        return [(like.wrong, like.how) for like in resemblances(lab, task, UNKNOWN, failures, profiles)]

    words = failures["scaled_test"].words
    assert found(in_place="expected 3", sign_lost="expected 4") == []
    assert found(in_place="expected 3") == [("in_place", "same failures")]
    assert found(in_place=words, sign_lost="expected 4") == [("in_place", "same results")]
    assert found(in_place=words, sign_lost=words) == [("in_place", "same results"), ("sign_lost", "same results")]
    assert resemblances(lab, task, UNKNOWN, {}, PROFILES) == ()


@pytest.mark.parametrize(
    ("one", "other", "are_alike"),
    [
        ("off by 0.14812499", "off by 0.148124993", True),
        ("off by 1.4e-07", "off by 1.9e-07", False),
        ("<f at 0x7f3a21>", "<f at 0x55d01c>", True),
        ("expected 1024 actual 1000", "expected 1024 actual 1001", False),
        ("at [0, 3]", "at [0, 4]", False),
        ("actual 321 877 B (1.82x)", "actual 321\u202f894 B (1.82x)", True),
        ("actual 321 877 B", "actual 421 877 B", False),
        ("expected 1 actual 2 meaning line 3: y = x next look", "expected 1 actual 2 meaning line 4: b = a", True),
    ],
)
def test_errors_are_compared_without_what_differs_from_run_to_run(one: str, other: str, are_alike: bool) -> None:
    assert (sign("CheckError", one) == sign("CheckError", other)) is are_alike


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("def f(a, b): return a - b", "def f(a, b): return b - a"),
        ("x = min(a)", "x = max(a)"),
        ("x.real", "x.imag"),
        ("x = 'a'", "x = 'b'"),
        ("%%cuda f\na[i] * b[j];", "%%cuda f\na[j] * b[i];"),
    ],
)
def test_canonical_form_separates_different_programs(one: str, other: str) -> None:
    assert canonical(one) != canonical(other)


def test_explanation(lab: Lab, results: list[Result], submissions: Any) -> None:
    told = explain(lab, results[1], submissions["bob"], "scaled")
    assert (told.points, told.max_points, told.answer) == (10, 50, SIGN_LOST)
    assert [(one.name, one.passed, one.why) for one in told.tests] == [
        ("scaled_test", False, "A result is not what the test expects."),
        ("scaled_test_empty", True, ""),
    ]
    assert [(one.wrong, one.how) for one in told.resembles] == [("sign_lost", "same code")]
    text = str(told)
    assert text.startswith("bob, scaled of lab90_tiny: 10 of 50 points\n\nasked: Scale\n\nwrote:\n    def")
    assert (
        "scaled_test: failed, 0 of 40, hidden in part\n    A result is not what the test expects.\n    it said: Asser"
    ) in text
    assert "scaled_test_empty: passed, 10 of 10" in text
    assert "it said: AssertionError:" in text
    assert text.endswith("It is the wrong answer sign_lost: a factor is never negative")
    assert "\x1b" not in text


def test_explanation_names_irregularities_and_is_bounded(lab: Lab, results: list[Result], submissions: Any) -> None:
    failed = {"scaled": "TypeError: no", **{f"cell {at}": "ended the process" for at in range(20)}}
    odd = replace(results[1], failed_cells=failed, oddities=("the cell x is missing",), restarts=2, sandbox=False)
    text = str(explain(lab, odd, submissions["bob"], "scaled"))
    assert "\nits own cell failed: TypeError: no\n" in text
    about = text.partition("about the whole submission:\n")[2].splitlines()
    assert [line.strip() for line in (about[0], about[1], *about[-3:])] == [
        "the cell x is missing",
        "cell 0 failed: ended the process",
        "... and 14 more cells that failed",
        "its process had to be started anew 2 times: code ended it, or did not end",
        "it was graded without a sandbox",
    ]


def test_explanation_by_test_name_and_without_an_answer(lab: Lab, results: list[Result], submissions: Any) -> None:
    by_test = explain(lab, results[2], submissions["cy"], "scaled_test_empty", PROFILES)
    assert by_test.task == "scaled"
    assert [(one.wrong, one.how) for one in by_test.resembles] == [
        ("in_place", "same results"),
    ]
    assert "It gives the results of the wrong answer in_place: " in str(by_test)
    nothing = explain(lab, results[6], submissions["gus"], "Tally", PROFILES)
    assert nothing.answer == ""
    assert "wrote nothing: the stub is as it was" in str(nothing)
    assert nothing.resembles == ()
    right = explain(lab, results[0], submissions["ada"], "Tally")
    assert ([one.passed for one in right.tests], right.resembles) == ([True], ())
    with pytest.raises(LabkitError, match="its tasks are scaled, Tally"):
        explain(lab, results[0], [], "other")
    with pytest.raises(LabkitError, match="the machine went away; grade it again"):
        explain(lab, results[7], [], "scaled")


# --- pages -----------------------------------------------------------------------------------------------------------


def pages(lab: Lab, results: list[Result], submissions: Any) -> dict[str, str]:
    from mlsys_grading.analysis.pages import explanation_page, report_page, similarity_page
    from mlsys_grading.analysis.similarity import similarities

    marked = {
        name: [*cells, {"cell_type": "code", "source": f"x = '{NASTY}\ud800'", "metadata": {}}]
        for name, cells in submissions.items()
    }
    marked |= {"kim": marked["cy"], "<b>lee": marked["cy"]}
    return {
        "report": report_page(class_report(lab, results, submissions, PROFILES)),
        "similarity": similarity_page(similarities(lab, marked)),
        "explanation": explanation_page(
            explain(lab, replace(results[1], student="<script>alert(2)</script>"), submissions["bob"], "scaled")
        ),
    }


def test_pages_hold_their_numbers_and_no_script_of_a_student(lab: Lab, results: list[Result], submissions: Any) -> None:
    made = pages(lab, results, submissions)
    for page in made.values():
        page.encode("utf-8")
        assert "<script>alert" not in page
        assert "<b>lee" not in page
        assert "\x1b" not in page
        assert "http:" not in page.replace("http-equiv", "")
        assert "https:" not in page
        assert "src=" not in page
    assert "38.6<span" in made["report"]
    assert "a factor is never negative" in made["report"]
    assert "secret" not in made["report"]
    assert "cy, kim" in made["similarity"]
    assert "&lt;b&gt;lee" in made["similarity"]
    assert "<mark>" in made["similarity"]
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in made["explanation"]


def test_class_report_says_where_the_class_fell_and_why(lab: Lab, results: list[Result], submissions: Any) -> None:
    report = pages(lab, results, submissions)["report"]
    page = ElementTree.fromstring(report[report.index("<main") : report.index("</main>") + len("</main>")])
    hardest, easier = page.findall(".//tbody")[0]
    counts = [["".join(cell.itertext()) for cell in row] for row in (hardest, easier)]
    assert counts == [
        ["Scale scaled", "10 / 50", "", "1", "2", "4", "1"],
        ["Scale Tally", "28.57 / 50", "", "4", "0", "3", "1"],
    ]
    bar = hardest.find(".//span[@class='bar']")
    assert [(part.get("class"), part.get("style")) for part in bar] == [
        ("passed", "width:14.29%"),
        ("partly", "width:28.57%"),
        ("failed", "width:57.14%"),
    ]
    (card,) = page.findall(".//article[@id='task-scaled']")
    text = " ".join("".join(card.itertext()).split())
    assert "1 full points, 2 some, 4 none (1 unanswered)." in text
    assert "2 of the 6 students who lost points gave a known wrong answer." in text
    assert "a factor is never negative sign_lost 1 student by the same code" in text
    assert "multiplying in place makes a copy in_place 1 student by the same results" in text
    assert "3 students: The code raised IndexError. IndexError" in text


@pytest.fixture
def show(browser: Any) -> Iterator[Callable[[str, str], Any]]:
    contexts, troubles = [], []

    def open_page(html: str, scheme: str) -> Any:
        context = browser.new_context(offline=True, color_scheme=scheme, viewport={"width": 420, "height": 800})
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("request", lambda request: troubles.append(f"asked for {request.url}"))
        page.set_content(html)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert troubles == []


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_on_the_pages(
    show: Callable[[str, str], Any], lab: Lab, results: list[Result], submissions: Any, scheme: str
) -> None:
    axe = (files("axe_playwright_python") / "axe.min.js").read_text("utf-8")
    for name, html in pages(lab, results, submissions).items():
        page = show(html, scheme)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name
        page.evaluate(axe)
        found = page.evaluate("axe.run().then(result => result.violations)")
        assert [(one["id"], [node["html"][:160] for node in one["nodes"]]) for one in found] == [], name
