"""The corpus as one class of ``labkit grade``: each submission gets the marks that it deserves.

The quick part is a handful of every kind; ``make soak`` grades all of it. ``python -m tests.grading.corpus --door
grade`` prints the table.
"""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.grading.corpus.door import Class, Entry, Marks, student
from tests.grading.corpus.folders import FOLDERS
from tests.grading.corpus.judge import Bait
from tests.grading.corpus.submission import LAB, Submission, points, source
from tests.grading.corpus.submissions import SUBMISSIONS

pytestmark = [
    pytest.mark.usefixtures("sandbox_allowed"),
    pytest.mark.xdist_group("corpus"),
]
EVERYBODY: tuple[Entry, ...] = (*SUBMISSIONS, *FOLDERS)
QUICK = (
    "right",
    "half right",
    "noisy on stderr",
    "an older copy above",
    "cut off",
    "the process ends in a function",
    "forged verdict lines",
    "reads other students' files",
    "writes marks into the gradebook",
    "calls home",
    "the grader's environment",
    "tells by printing",
    "tells by errors",
    "a module beside",
    "a linked folder",
    "modules that shadow, unsolved",
    "metadata without end",
    "a pipe for a time",
    "a new line in the name",
    "called '<img src=x onerror=alert(8317)>'",
    "attachments",
    "a tebibyte beside",
)
NEVER_SHOWN = ("<svg onload", "<script>alert(8317)", "<img src=x")


def hidden_words() -> list[str]:
    """Return the lines and literals that only hidden tests contain, and one value computed from them."""
    found, cells = {f"{1000 + math.log(3):.5f}"}, source()["cells"]
    regions = re.compile(r"### BEGIN HIDDEN TESTS\n(.*?)### END HIDDEN TESTS", re.DOTALL)
    visible = "".join(regions.sub("", cell["source"]) for cell in cells)
    for text in (text for cell in cells for text in regions.findall(cell["source"])):
        found.update(line.strip() for line in text.splitlines())
        constants = (node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant))
        found.update(str(each) for each in constants if isinstance(each, (str, float)))
    return sorted(each for each in found if len(each) > 5 and each not in visible)


def chosen(names: Sequence[str]) -> list[Entry]:
    by_name = {entry.name: entry for entry in EVERYBODY}
    return [by_name[name] for name in names]


def check(group: Class, marks: Marks) -> None:
    """Check marks, totals, files and exit code of one run, and that nothing else is left."""
    expected = {student(each): each.expected for each in group.entries if not each.apart} | {
        "grace": frozenset(points())
    }
    apart = {student(each): each.apart for each in group.entries if each.apart}
    unfair = {who: sorted(cells ^ marks.cells.get(who, frozenset())) for who, cells in expected.items()}
    assert {who: cells for who, cells in unfair.items() if cells} == {}
    assert marks.cells.keys() == expected.keys()
    totals = {who: sum(points()[name] for name in cells) for who, cells in expected.items()}
    assert marks.totals == totals
    assert marks.exported == totals
    assert marks.code == int(bool(apart))
    assert marks.apart.keys() == apart.keys()
    for who, why in apart.items():
        assert why in marks.apart[who], who
    assert marks.changed == [], "files that are nobody's business"
    assert marks.left == []
    assert group.bait.heard == []
    assert "\x1b" not in marks.said
    written = group.written()
    assert written.keys() == expected.keys()
    for who, paths in written.items():
        wanted = {f"autograded/{who}/{LAB}/{LAB}.ipynb", f"feedback/{who}/{LAB}/{LAB}.html"}
        assert set(paths) - wanted <= {f"autograded/{who}/{LAB}/timestamp.txt"}, who
        assert wanted <= set(paths)


def check_pages(group: Class, marks: Marks) -> None:
    """Check that no page shows text of a hidden test, unless the student's own text contains it."""
    handed_in = {student(each): each for each in group.entries}
    for who in marks.cells:
        entry = handed_in.get(who)
        own = entry.file(group.bait.words).decode("utf-8", "replace") if isinstance(entry, Submission) else ""
        page = group.page(who)
        for word in hidden_words():
            assert word not in group.feedback(who) or json.dumps(word)[1:-1] in own, (who, word)
        for word in NEVER_SHOWN:
            assert word not in page, (who, word)
        notebook = group.notebook(who)
        for cell in (cell for cell in notebook["cells"] if cell["cell_type"] == "markdown"):
            assert not any(word in cell["source"] for word in NEVER_SHOWN), who
            assert "svg" not in json.dumps(cell.get("attachments", {}))
        if entry and entry.name == "attachments":
            assert '"a.png": {"image/png"' in json.dumps(notebook), (
                "pictures in an answer are for the person who marks it"
            )


def test_hidden_words_are_found() -> None:
    assert {"1001.09861", "1000.0", "softmax of large scores", "transposed"} <= set(hidden_words())
    assert "softmax of zeros" not in hidden_words(), "it stands in the visible part"


def test_quick_corpus_gets_deserved_marks_as_one_class(tmp_path: Path) -> None:
    bait = Bait(tmp_path / "class")
    with bait.listening():
        group = Class(bait, chosen(QUICK))
        marks = group.grade()
        check(group, marks)
        check_pages(group, marks)
    told = json.loads((group.root / f".mlsys-grading/results/{LAB}/tells-by-printing.json").read_text())
    assert f"{1000 + math.log(3):.5f}" in json.dumps(told), "the control: it was told, and kept from the page alone"


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_whole_corpus_gets_deserved_marks_as_one_class(tmp_path: Path) -> None:
    """Honest submissions get the same marks and texts when they are graded alone."""
    bait = Bait(tmp_path / "class")
    with bait.listening():
        group = Class(bait, EVERYBODY)
        marks = group.grade()
        check(group, marks)
        check_pages(group, marks)
    honest = [each for each in SUBMISSIONS if each.kind == "honest"]
    alone = Class(Bait(tmp_path / "alone"), honest)
    check(alone, alone.grade(jobs=1))
    for who in map(student, honest):
        assert group.rows(who) == alone.rows(who)
        assert group.feedback(who) == alone.feedback(who)
