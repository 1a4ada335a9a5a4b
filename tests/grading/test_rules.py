"""The rules for test cells: a cell that breaks one is refused with its line, and a correct variant is accepted."""

# ruff: noqa: E501 - a table of broken and sound code reads best with one case a line

from __future__ import annotations

import pytest

from tests.grading.course import LAB, TEST_LINE, Course

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
    ("rule 4", "from unittest.mock import patch", 1, "_ = scaled([1.0], 2)"),
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
    ("rule 7", "scaled([1], 2)", 1, "_ = scaled([1], 2)"),
    ("rule 7", "lk.checks.expect_peak(max, 1, 2, at_most_bytes=9)", 1, "lk.checks.expect_raises(ValueError, int, 'x')"),
    ("rule 7", "4", 1, "np.testing.assert_array_equal(3, 3)"),
    ("rule 7", "scaled", 1, "if scaled:\n    4"),
    ("rule 7", "'well done'", 1, "print('well done')"),
    ("rule 7", "4\n### BEGIN HIDDEN TESTS\nassert scaled\n### END HIDDEN TESTS", 1, "x = 4\n### BEGIN HIDDEN TESTS\nassert x\n### END HIDDEN TESTS"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "broken", "line", "sound"), CELLS)
def test_rules_for_test_cells(course: Course, rule: str, broken: str, line: int, sound: str) -> None:
    original = course.source.read_text()
    start = course.edit(course.source, TEST_LINE, f"{TEST_LINE}\n{broken}") + 1
    found = [finding for finding in course.findings() if finding.rule == rule]
    assert found, f"{rule} missed it"
    assert found[0].where == f"solutions/{LAB}/{LAB}.py:{start + line - 1}"
    assert found[0].instead
    course.source.write_text(original)
    course.edit(course.source, TEST_LINE, f"{TEST_LINE}\n{sound}")
    assert course.findings() == []


def test_a_students_type_in_an_annotation_counts_too(course: Course) -> None:
    course.edit(course.source, "class Tally:", "def fresh() -> Tally:\n    return Tally()\n\n\nclass Tally:")
    course.edit(course.source, TEST_LINE, f"{TEST_LINE}\nassert fresh() == fresh()")
    assert {finding.rule for finding in course.findings()} == {"rule 1"}


def test_a_reference_answer_in_a_locked_cell(course: Course) -> None:
    line = course.edit(
        course.source, "    y: float\n", "    y: float\n\n\ndef reference_scaled(x, factor):\n    return 0\n"
    )
    (finding,) = course.findings()
    assert finding.rule == "rule 2"
    assert finding.where.endswith(f".py:{line + 3}")
