"""Every rule of the build: a lab that breaks it is refused with the line, and its sound neighbour is not."""

# ruff: noqa: E501 - a table of broken and sound code reads best with one case a line

from __future__ import annotations

from collections.abc import Callable

import pytest

from mlsys_grading.build.finding import Finding
from mlsys_grading.build.lint import lint
from mlsys_grading.build.markers import HIDDEN, SOLUTION, regions
from mlsys_grading.lab import read_lab
from mlsys_labkit.cli import main
from tests.grading.course import LAB, Course

TEST_LINE = "expect_equal(scaled([], 2).size, 0)"  # the one line of scaled_test_empty


def findings(course: Course) -> list[Finding]:
    return lint([read_lab(course.root, LAB)])[LAB]


def rules(course: Course) -> set[str]:
    return {finding.rule for finding in findings(course)}


def test_the_tiny_lab_is_clean(course: Course) -> None:
    assert findings(course) == []


# What a test cell may hold, and what it may not: (rule, broken code, line of the cell, sound code).
CELLS = [
    ("rule 1", "t = Tally()\nu = Tally()\nassert t == u", 3, "t = Tally()\nassert t.see(1) == 1"),
    ("rule 1", "assert Tally() != None", 1, "assert Tally() is not None"),
    ("rule 1", "t = Tally()\nassert t in [Tally()]", 2, "t = Tally()\nassert t.counts == {}"),
    ("rule 1", "t = Tally()\nexpect_equal(t, Tally())", 2, "t = Tally()\nexpect_equal(t.counts, {})"),
    ("rule 2", "@dataclass\nclass P:\n    x: int", 2, "p = Pair(1, 2)"),
    ("rule 2", "from enum import Enum\nclass Colour(Enum):\n    RED = 1", 2, "class Plain:\n    pass"),
    ("rule 2", "from typing import NamedTuple\nclass P(NamedTuple):\n    x: int", 2, "p = Pair(1, 2)"),
    ("rule 2", "class Lost(ValueError):\n    pass", 1, "expect_raises = ValueError"),
    ("rule 2", "from collections import namedtuple\nP = namedtuple('P', 'x')", 2, "p = Pair(1, 2)"),
    (
        "rule 3",
        "x = np.ones(3)\nscaled(x, 2)\nexpected = 2 * x\nexpect_close(x, expected)",
        3,
        "x = np.ones(3)\nexpected = 2 * x\nscaled(x, 2)\nexpect_close(x, expected)",
    ),
    ("rule 3", "x = np.ones(3)\nscaled(x, 2)\nexpect_close(x, np.sort(x))", 3, "x = np.ones(3)\nscaled(x, 2)\nexpect_close(x, np.ones(3))"),
    ("rule 3", "for n in (1, 2):\n    x = np.ones(n)\n    scaled(x, 2)\n    assert x == np.flip(x)", 4, "x = np.ones(3)\ny = scaled(x, 2)\nexpect_close(y, 2 * x)"),
    ("rule 3", "x = np.ones(3)\nscaled(x, 2)\nwant = x + 1", 3, "x = np.ones(3)\nscaled(x, 2)\nx = np.zeros(3)\nwant = x + 1"),
    ("rule 4", "import tracemalloc", 1, "from mlsys_labkit.checks import expect_peak"),
    ("rule 4", "from unittest.mock import patch", 1, "lk.count_work(scaled, [1.0], 2)"),
    ("rule 4", "from unittest import mock", 1, "import math"),
    ("rule 4", "import gc\ngc.collect()", 1, "count = 1"),
    ("rule 4", "assert 'scaled' in globals()", 1, "assert callable(scaled)"),
    ("rule 4", "import sys\nassert 'torch' not in sys.modules", 2, "import sys\nassert sys.byteorder"),
    ("rule 4", "x = np.ones(2)\nassert np.shares_memory(x, x)", 2, "from mlsys_labkit.checks import expect_shares_memory"),
    ("rule 4", "import torch\nassert torch.ones(1).data_ptr()", 2, "import torch\nassert torch.ones(1).stride() == (1,)"),
    ("rule 4", "x = np.ones(2)\nassert x[:1].base is x", 2, "x = np.ones(2)\nassert x[:1].strides == (8,)"),
    ("rule 4", "import time\nstart = time.perf_counter()", 1, "start = 0"),
    ("rule 4", "assert id(scaled) != 0", 1, "id = 3"),
    ("rule 4", "import resource as r\nr.getrusage(0)", 1, "resource = 3\nassert resource == 3"),
    ("rule 5", "x = np.random.rand(3)", 1, "np.random.seed(1)\nx = np.random.rand(3)"),
    ("rule 5", "g = np.random.default_rng()", 1, "g = np.random.default_rng(seed + 3)"),
    ("rule 5", "x = np.random.rand(3)\nnp.random.seed(1)", 1, "x = np.random.default_rng(1).random(3)"),
    ("rule 5", "import random\nx = random.random()", 2, "import random\nx = random.Random(3).random()"),
    ("rule 5", "import torch\nx = torch.randn(3)", 2, "import torch\ntorch.manual_seed(1)\nx = torch.randn(3)"),
    ("rule 5", "import torch\nx = torch.empty(3).normal_()", 2, "import torch\nx = torch.rand(3, generator=torch.Generator().manual_seed(1))"),
    ("rule 5", "import torch\nlayer = torch.nn.Linear(2, 2)", 2, "import torch\nlayer = torch.nn.ReLU()"),
    ("rule 5", "from torch import nn\nlayer = nn.Linear(2, 2)", 2, "from torch import nn\nlayer = nn.GELU()"),
    ("rule 5", "x = rng.normal(size=3)", 1, "rng = np.random.default_rng(0)\nx = rng.normal(size=3)"),
    ("rule 5", "import os\nx = os.urandom(3)", 2, "import os\nx = os.sep"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "broken", "line", "sound"), CELLS)
def test_rules_for_test_cells(course: Course, rule: str, broken: str, line: int, sound: str) -> None:
    original = course.source.read_text()
    start = course.edit(course.source, TEST_LINE, f"{TEST_LINE}\n{broken}") + 1
    found = [finding for finding in findings(course) if finding.rule == rule]
    assert found, f"{rule} missed it"
    assert found[0].where == f"solutions/{LAB}/{LAB}.py:{start + line - 1}"
    assert found[0].instead
    course.source.write_text(original)
    course.edit(course.source, TEST_LINE, f"{TEST_LINE}\n{sound}")
    assert findings(course) == []


def test_a_students_type_in_an_annotation_counts_too(course: Course) -> None:
    course.edit(course.source, "class Tally:", "def fresh() -> Tally:\n    return Tally()\n\n\nclass Tally:")
    course.edit(course.source, TEST_LINE, f"{TEST_LINE}\nassert fresh() == fresh()")
    assert rules(course) == {"rule 1"}


def test_a_reference_answer_in_a_locked_cell(course: Course) -> None:
    line = course.edit(
        course.source, "    y: float\n", "    y: float\n\n\ndef reference_scaled(x, factor):\n    return 0\n"
    )
    (finding,) = findings(course)
    assert finding.rule == "rule 2"
    assert finding.where.endswith(f".py:{line + 3}")


STRUCTURE: list[tuple[str, str, str, str]] = [
    ("header", "#   kernelspec:\n#     display_name: Python 3 (ipykernel)\n#     language: python\n#     name: python3\n", "#   title: x\n", "no kernelspec"),
    ("header", "#     name: python3", "#     name: julia", "the kernel is 'julia'"),
    ("title", "# # Lab 90", "# Lab 90", "no title"),
    ("parameters", '# %% tags=["parameters"]', "# %%", "0 cells are tagged"),
    ("parameters", "seed = 0", "sead = 0", "seed is not set"),
    ("metadata", '"grade_id": "record", "locked": true,', '"grade_id": "record", "locked": True,', "no JSON"),
    ("metadata", '"solution": false, "task": false}\nfrom dataclasses', '"solution": false}\nfrom dataclasses', "lacks task"),
    ("kind", '"grade": false, "grade_id": "scaled"', '"grade": true, "points": 3, "grade_id": "scaled"', "marked by hand"),
    ("kind", '"grade_id": "scaled_test_empty", "locked": true', '"grade_id": "scaled_test_empty", "locked": false', "not locked"),
    ("kind", '"points": 10', '"points": 0', "no points"),
    ("grade id", '"grade_id": "record"', '"grade_id": "scaled"', "'scaled' stands at"),
    ("grade id", '"grade_id": "record"', '"grade_id": ""', "has none"),
    ("grade id", '"grade_id": "record"', '"grade_id": "a record"', "no cell id"),
    ("test name", '"grade_id": "scaled_test_empty"', '"grade_id": "empty_test"', "follows the task 'scaled'"),
    ("points", '"points": 50', '"points": 49', "they sum to 99 (scaled 50, Tally 49)"),
    ("marker", "    return secret_copy\n    ### END SOLUTION", "    return secret_copy", "without its END"),
    ("marker", "### BEGIN HIDDEN TESTS\nrng", "rng", "END HIDDEN TESTS without its BEGIN"),
    ("marker", "    secret_copy *= factor\n", "    ### BEGIN SOLUTION\n    secret_copy *= factor\n", "BEGIN SOLUTION inside the SOLUTION"),
    ("marker", "smoke = False", "### BEGIN SOLUTION\nsmoke = False\n### END SOLUTION", "outside a solution cell"),
    ("marker", "smoke = False", "### BEGIN HIDDEN TESTS\nsmoke = False\n### END HIDDEN TESTS", "outside a test cell"),
    ("stub", "def scaled(x, factor):\n", "### BEGIN SOLUTION\nzero = 0\n### END SOLUTION\ndef scaled(x, factor):\n", "outside a function"),
    ("syntax", "### BEGIN HIDDEN TESTS\nassert tally.see", "for _ in (1,):\n    ### BEGIN HIDDEN TESTS\n    assert tally.see", "without its hidden tests"),
    ("syntax", 'assert tally.see("b") == 1', 'assert tally.see("b") == ', "Tally_test"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "old", "new", "said"), STRUCTURE)
def test_rules_for_the_form(course: Course, rule: str, old: str, new: str, said: str) -> None:
    course.edit(course.source, old, new)
    assert [finding for finding in findings(course) if finding.rule == rule and said in str(finding)]


BESIDE: list[tuple[str, Callable[[Course], object], str]] = [
    ("wrong answers", lambda c: c.edit(c.wrong, '"name": "shared", "misconception"', '"name": "total", "misconception"'), "two wrong answers called total"),
    ("wrong answers", lambda c: c.edit(c.wrong, '"Tally", "name": "shared"', '"Telly", "name": "shared"'), "'Telly' is no graded task"),
    ("wrong answers", lambda c: c.edit(c.wrong, '"Tally", "name": "shared"', '"scaled", "name": "shared"'), "the task Tally has 2"),
    ("wrong answers", lambda c: c.edit(c.wrong, '"keeps": 10}\ndef scaled(x, factor):\n    x', '"keeps": 50}\ndef scaled(x, factor):\n    x'), "keeps 50 of 50"),
    ("wrong answers", lambda c: c.wrong.unlink(), "the task scaled has 0"),
    ("coach", lambda c: c.notes.unlink(), "the file is missing"),
    ("coach", lambda c: c.edit(c.notes, "[Tally]", "[Telly]"), "[Tally] is missing"),
    ("coach", lambda c: c.edit(c.notes, "answer = 1", "answer = 3"), "answer = 3"),
    ("coach", lambda c: c.edit(c.notes, 'because = "Nothing was seen."\n', ""), "has no because"),
    ("coach", lambda c: c.edit(c.notes, 'hints = ["Where do counts live?"]', "hints = []"), "has 0 hints"),
    ("coach", lambda c: c.edit(c.notes, "answer = 1", "answer = "), "not valid TOML"),
    ("files", lambda c: (c.source.parent / "helper.py").write_text("x = 1"), "neither the source"),
    ("leak", lambda c: c.edit(c.notes, "Allocate the result.", "np.array(x, dtype=np.float64,  copy=True)"), "coach's notes"),
    ("leak", lambda c: c.edit(c.source, "# The end.", "# self.counts[thing] = self.counts.get(thing, 0) + 1"), "solution of Tally"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "damage", "said"), BESIDE)
def test_rules_for_what_stands_beside(course: Course, rule: str, damage: Callable[[Course], object], said: str) -> None:
    damage(course)
    assert [finding for finding in findings(course) if finding.rule == rule and said in str(finding)]


def test_all_findings_come_at_once_in_the_order_of_lines(course: Course, capsys: pytest.CaptureFixture[str]) -> None:
    course.edit(course.source, "seed = 0", "sead = 0")
    course.edit(course.source, '"points": 50', '"points": 49')
    course.edit(course.source, TEST_LINE, f"{TEST_LINE}\nimport tracemalloc")
    assert main(["build", "--root", str(course.root)]) == 1
    said = capsys.readouterr().err.splitlines()
    assert [line.partition(": ")[2].partition(":")[0] for line in said[:-1]] == ["points", "parameters", "rule 4"]
    assert said[-1].startswith("labkit build: 3 to mend")
    assert not course.student.exists()


def test_regions_pair_up() -> None:
    source = "a\n### BEGIN SOLUTION\nb\nc\n### END SOLUTION\n### BEGIN HIDDEN TESTS\n### END HIDDEN TESTS"
    found, wrong = regions(source)
    assert [(r.what, r.lines(source)) for r in found] == [(SOLUTION, ["b", "c"]), (HIDDEN, [])]
    assert not wrong
