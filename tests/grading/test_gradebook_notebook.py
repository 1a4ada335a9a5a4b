"""Graded notebooks: nbgrader reads the same marks from them for any submission, and no student's HTML is in them."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import nbformat
import pytest
from hypothesis import example, given, settings, strategies as st
from nbconvert.filters import markdown2html
from nbgrader.nbgraderformat import MetadataValidator
from nbgrader.utils import compute_checksum, determine_grade

from mlsys_grading.examine.plan import make_plan
from mlsys_grading.files import write_files
from mlsys_grading.gradebook.autograded import autograded_files, graded_notebook, harmless
from mlsys_grading.gradebook.paths import SubmissionPaths
from mlsys_grading.gradebook.submission import MAX_CHARACTERS, match
from mlsys_grading.result import CellMark
from mlsys_labkit.errors import LabkitError
from tests.grading.gradebook_helpers import LAB, SOURCE, answered, cell, lab, notebook, result

REGISTERED = lab()
NAMES = [each.name for each in REGISTERED.cells]
SOURCES = {each.name: each.source for each in REGISTERED.cells}


def graded(submission: Any, **more: Any) -> Any:
    """Return the graded notebook, checked by nbformat's and nbgrader's validators."""
    made = graded_notebook(REGISTERED, match(REGISTERED, submission), result(**more))
    found = nbformat.from_dict(json.loads(json.dumps(made)))
    nbformat.validate(found)
    MetadataValidator().validate_nb(found)
    return found


def named(found: Any) -> dict[str, Any]:
    return {each.metadata.nbgrader.grade_id: each for each in found.cells if "nbgrader" in each.metadata}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(NAMES),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
names = st.sampled_from([*NAMES, "unknown", ""]) | json_values
flags = st.fixed_dictionaries(
    {"grade_id": names},
    optional=dict.fromkeys(
        ("grade", "solution", "locked", "task", "points", "schema_version", "checksum"), json_values
    ),
)
cells = st.fixed_dictionaries(
    {},
    optional={
        "cell_type": st.sampled_from(["code", "markdown", "raw", "other"]) | json_values,
        "source": st.text(st.characters(), max_size=20) | st.lists(st.text(max_size=5), max_size=3) | json_values,
        "metadata": st.fixed_dictionaries({"nbgrader": flags}, optional={"tags": json_values}) | json_values,
        "attachments": json_values,
        "outputs": json_values,
        "id": json_values,
    },
)
submissions = st.fixed_dictionaries({}, optional={"cells": st.lists(cells, max_size=12) | json_values}) | json_values


@settings(max_examples=50)
@given(submissions)
def test_any_submission_becomes_a_notebook_with_the_labs_tests(submission: Any) -> None:
    found = graded(submission)
    there = named(found)
    assert set(there) == set(NAMES)
    for each in REGISTERED.cells:
        if each.is_locked:
            assert there[each.name].source == each.source
            assert compute_checksum(there[each.name]) == each.metadata["checksum"]
    for name, mark in {mark.name: mark for mark in result().marks}.items():
        assert determine_grade(there[name]) == (mark.points, mark.max_points)


@settings(max_examples=40)
@given(st.lists(st.sampled_from([*NAMES, "unknown", ""]), max_size=15))
def test_examined_cell_of_duplicates_is_shown(order: list[str]) -> None:
    """The oracle is the examiner's plan, which chooses one text for each name."""
    submission = notebook(*(cell(f"v = {at}", name) for at, name in enumerate(order)))
    there = named(graded(submission))
    for each in make_plan(SOURCE["cells"], submission["cells"]).examiner:
        if each.kind == "solution" and each.name in order and REGISTERED[each.name].cell_type == "code":
            assert there[each.name].source == each.answer
    texts = sorted(each.source for each in graded(submission).cells if each.source.startswith("v = "))
    locked = {each.name for each in REGISTERED.cells if each.is_locked}
    last = {name: at for at, name in enumerate(order)}
    assert texts == sorted(f"v = {at}" for at, name in enumerate(order) if name not in locked or last[name] != at)


points = st.sampled_from([0.0, 0.5, 1 / 3, 1.0, 2.0, 3.0])


@settings(max_examples=50)
@given(points, st.text(max_size=30), st.text(max_size=30))
def test_nbgrader_reads_the_marks_off_the_outputs(earned: float, error: str, printed: str) -> None:
    mark = CellMark("double_test", earned, 3.0, error=error if earned < 3 else "", printed=printed)
    made = result()
    made = replace(made, marks=tuple(mark if each.name == mark.name else each for each in made.marks))
    found = named(nbformat.from_dict(graded_notebook(REGISTERED, match(REGISTERED, answered()), made)))
    assert determine_grade(found["double_test"]) == (earned, 3.0)


def test_a_verdict_is_one_line_and_a_pass_says_nothing() -> None:
    made = result(points={"double_test": 0.0}, failed_cells={"halve": "ZeroDivisionError: by\nzero", "cell 1": "Boom"})
    found = graded_notebook(REGISTERED, match(REGISTERED, answered()), made)
    there = {each["metadata"].get("nbgrader", {}).get("grade_id"): each for each in found["cells"]}
    line = "AssertionError: it is not so"
    error = {"output_type": "error", "ename": "AssertionError", "evalue": "it is not so", "traceback": [line]}
    assert there["double_test"]["outputs"] == [error]
    assert there["double_more"]["outputs"] == []
    assert there["halve"]["outputs"][0]["traceback"] == ["ZeroDivisionError: by zero"]
    assert found["cells"][1]["outputs"][0]["traceback"] == ["Boom"]


def test_missing_cells_are_restored_in_place() -> None:
    submission = answered({"double": "mine"})
    submission["cells"] = [each for each in submission["cells"] if "double_" not in str(each["metadata"])]
    submission["cells"] = [each for each in submission["cells"] if "halve'" not in str(each["metadata"])]
    order = [each.metadata.nbgrader.grade_id for each in graded(submission).cells if "nbgrader" in each.metadata]
    assert order == NAMES
    assert "missing" in named(graded(submission))["halve"].source
    assert [each.name for each in REGISTERED.cells] == list(named(graded(None)))


def test_the_size_is_bounded() -> None:
    """An ordinary submission is far below the bound; of a larger one, a piece of each text is kept."""
    flood = [cell("x" * 500_000) for _ in range(50)] + [cell("y") for _ in range(20_000)]
    submission = notebook(*flood)
    made = replace(result(points={"double_test": 0.0}), failed_cells={f"cell {at}": "E" * 10**5 for at in range(50)})
    marks = tuple(replace(mark, printed="p" * 10**6, error=mark.error and "e" * 10**6) for mark in made.marks)
    text = json.dumps(graded_notebook(REGISTERED, match(REGISTERED, submission), replace(made, marks=marks)))
    assert len(text) < MAX_CHARACTERS + 1_000_000
    assert set(named(graded(submission))) == set(NAMES)


def test_pictures_in_an_answer_stay_and_other_attachments_do_not() -> None:
    submission = answered({"why": "![](attachment:a.png)"})
    (answer,) = (each for each in submission["cells"] if each["metadata"].get("nbgrader", {}).get("grade_id") == "why")
    answer["attachments"] = {
        "a.png": {"image/png": "aGk=", "text/html": "<script>"},
        "b.svg": {"image/svg+xml": "<svg onload=alert(1)>"},
        "c.png": {"image/png": '"onerror="alert(1)'},
    }
    assert named(graded(submission))["why"].attachments == {"a.png": {"image/png": "aGk="}}


class Tags(HTMLParser):
    """The tags and attributes that a browser finds."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attributes)))


MARKDOWN = {"p", "em", "strong", "a", "img", "code", "pre", "h1", "h2", "h3", "h4", "h5", "h6", "ul", "ol", "li"}
MARKDOWN |= {"blockquote", "hr", "br", "table", "thead", "tbody", "tr", "th", "td", "del", "div", "span", "input"}
MARKDOWN |= {"dl", "dt", "dd"}
PIECES = ["<", ">", "script", "/script", "img src=x onerror=alert(1)", "java", "&#106;ava", "&Tab;", "[x](", ")", "`"]
PIECES += ["script:alert(1)", "JaVaScRiPt:alert(1)", "<!--", "-->", "<?", "<svg/onload=alert(1)>", "\\", ":", "&colon;"]
PIECES += ["[x]: javascript:alert(1)\n", "[x]", "<javascript:alert(1)>", "vbscript:x", "![x](", "\t", "&#x3c;script>"]
PIECES += ["a < b", "$x<y$", "$", "\\begin{a}", "\\end{a}", "\n", "\n\n", "**", "> ", "- "]


def dangers(html: str) -> Iterator[str]:
    parser = Tags()
    parser.feed(html)
    for tag, attributes in parser.found:
        if tag not in MARKDOWN:
            yield tag
        for name, value in attributes.items():
            address = "".join((value or "").split()).lower()
            if name.startswith("on") or (name in ("href", "src") and address.startswith(("javascript:", "vbscript:"))):
                yield f"{tag} {name}={value}"


@given(st.lists(st.sampled_from(PIECES), max_size=10).map("".join))
@example("[x](&#106;avascript:alert(1))")
@example("[x](javascript&colon;alert(1))")
@example("&#60;script&#62;alert(1)")
@example("<[x]: javascript:alert(1)\n:\t")
def test_no_students_html_reaches_formgrader(text: str) -> None:
    assert list(dangers(markdown2html(harmless(text)))) == []


def test_html_reaches_formgrader_without_the_filter() -> None:
    attack = "<script>alert(1)</script> <img src=x onerror=alert(1)>\n\n[x](javascript:alert(1))"
    assert {found.split()[0] for found in dangers(markdown2html(attack))} == {"script", "img", "a"}
    submission = answered({"why": attack})
    submission["cells"] += [cell(attack, kind="markdown"), cell(attack, kind="raw")]
    texts = [each.source for each in graded(submission).cells if "alert" in each.source]
    assert len(texts) == 3
    assert not any("<script" in text or "<img" in text or "javascript" in text for text in texts)
    assert harmless("a < b and $x < 3$, *so* `x >= 1`") == "a < b and $x < 3$, *so* `x >= 1`"


def test_failed_write_leaves_the_old_notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    submission = match(REGISTERED, answered())
    path = SubmissionPaths.of(tmp_path, "ada", LAB).notebook
    assert path == tmp_path / "autograded" / "ada" / LAB / f"{LAB}.ipynb"
    write_files(autograded_files(path, REGISTERED, submission, result(), "2030-01-01 10:00:00 UTC\n"))
    assert path.with_name("timestamp.txt").read_text() == "2030-01-01 10:00:00 UTC\n"
    before = path.read_bytes()

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(OSError, match="No space left"):
        write_files(autograded_files(path, REGISTERED, submission, result(points={"double_test": 0.0})))
    assert path.read_bytes() == before
    assert sorted(each.name for each in path.parent.iterdir()) == [f"{LAB}.ipynb", "timestamp.txt"]


def test_text_that_is_no_unicode_can_be_written(tmp_path: Path) -> None:
    submission = match(REGISTERED, answered({"double": "\ud800 mine", "why": "\udfff"}))
    made = result(points={"double_test": 0.0}, failed_cells={"halve": "\ud800"})
    path = tmp_path / f"{LAB}.ipynb"
    write_files(autograded_files(path, REGISTERED, submission, made))
    assert named(nbformat.read(path, as_version=4))["double"].source == "? mine"


@pytest.mark.parametrize("student", ["..", ".", "", "a/b", "../../etc", "a\0b", "\udcff"])
def test_a_name_that_leads_elsewhere_is_refused(tmp_path: Path, student: str) -> None:
    with pytest.raises(LabkitError, match="is no name for a folder"):
        SubmissionPaths.of(tmp_path, student, LAB)
    with pytest.raises(LabkitError, match="is no name for a folder"):
        SubmissionPaths.of(tmp_path, "ada", student)


def test_matching_leaves_the_submission_as_it_was() -> None:
    submission = answered({"double": "mine"})
    before = copy.deepcopy(submission)
    graded(submission)
    assert submission == before
