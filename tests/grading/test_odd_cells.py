"""Odd cells that are no trouble of the machine: slow ones, ones that do not parse, tests that end in no points."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from mlsys_grading.examine.plan import make_plan
from mlsys_grading.examine.run import Examined, examine_submission
from mlsys_grading.fork_server.client import ForkServer
from mlsys_grading.sandbox.confine import Sandbox, refusal
from mlsys_grading.time_limits import TimeLimits

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="a sandbox takes Linux's namespaces"),
    pytest.mark.xdist_group("sandbox"),
]


@pytest.fixture(scope="module")
def server(fork_server: Callable[[Sequence[str]], ForkServer]) -> Iterator[ForkServer]:
    if reason := refusal():
        pytest.skip(f"this machine allows no sandbox: {reason}")
    with fork_server([]) as made:
        yield made


def cell(source: str, **nbgrader: Any) -> dict[str, Any]:
    return {"cell_type": "code", "source": source, "metadata": {"nbgrader": nbgrader} if nbgrader else {}}


def examine(
    server: ForkServer, test: str, answer: str, *own: str, locked: str = "", time_limits: TimeLimits | None = None
) -> Examined:
    """Examine one task ``f`` of 4 points, solved by ``answer``, with own cells before it."""
    source = [
        cell("import numpy as np, torch\n" + locked, grade_id="setup", locked=True),
        cell("def f(x): return x", grade_id="f", solution=True),
        cell(test, grade_id="f_test", grade=True, locked=True, points=4),
    ]
    handed_in = [*map(cell, own), cell(answer, grade_id="f", solution=True)]
    return examine_submission(
        server, make_plan(source, handed_in), {}, time_limits or TimeLimits(5, 10, 100), Sandbox()
    )


def test_slow_cells_of_the_students_own_are_no_trouble_of_the_machines(server: ForkServer) -> None:
    nap = "import time; time.sleep(1.8)"
    examined = examine(server, "assert f(1) == 1", "def f(x): return x", *[nap] * 9, time_limits=TimeLimits(1, 10, 100))
    assert (examined.trouble, examined.points, examined.failed_cells) == ("", 4, {})


@pytest.mark.parametrize(
    "own",
    [
        "def deep():\n    return " + "+".join(["1"] * 5000),
        "deeper = " + "-" * 50_000 + "1",
        "x = '\0'",
        "\n".join(["!a"] * 501),  # IPython gives up after transforming 500 lines
    ],
    ids=["deep", "deeper", "null", "magics"],
)
def test_a_cell_that_cannot_be_parsed_costs_no_process_but_the_students(server: ForkServer, own: str) -> None:
    test = "value, _ = call_traced(f, torch.ones(3))\nassert value.sum() == 3"
    locked = "from mlsys_labkit.memory import call_traced"
    time_limits = TimeLimits(200, 400, 900)
    examined = examine(server, test, "def f(x): return x", own, locked=locked, time_limits=time_limits)
    assert (examined.trouble, examined.points) == ("", 4)


@pytest.mark.parametrize(
    ("value", "points"),
    [
        ("float('nan')", 0),
        ("-1e-9", 0),
        ("float('inf')", 0),
        ("4.001", 0),
        ("1.5", 1.5),
        ("np.float64(1.5)", 1.5),
        ("np.float32('nan')", 0),
        ("torch.tensor(1.5)", 1.5),
        ("torch.tensor(1.5, dtype=torch.float64)", 1.5),
        ("True", 4),
        ("'enough'", 4),
        ("None", 4),
    ],
)
def test_only_a_number_of_points_is_partial_credit(server: ForkServer, value: str, points: float) -> None:
    assert examine(server, "f(1)", f"def f(x): return {value}").points == points


def test_a_credit_that_is_no_number_is_the_least_of_two(server: ForkServer) -> None:
    answer = "def f(x):\n    x += 1\n    return [1.5, float('nan')][int(x[0]) - 1]"
    assert examine(server, "x = torch.zeros(1)\nf(x)\nf(x)", answer).points == 0


def test_iterator_stand_in_gives_only_values(server: ForkServer) -> None:
    answer = """
class Yes:
    shape = (3,)
    def __iter__(self): return self
    def __next__(self): raise StopIteration
    def data_ptr(self): return 1
def f(x): return Yes()
"""
    assert examine(server, "y = f(torch.ones(3))\nassert y.shape == (3,) and y.data_ptr()", answer).points == 0


def test_a_group_of_exceptions_is_an_exception(server: ForkServer) -> None:
    examined = examine(server, "f(1)", "def f(x): raise ExceptionGroup('two', [KeyError(1), OSError(2)])")
    assert examined.marks[0].error.startswith("Exception: two")


def test_records_with_slots_may_be_written_to(server: ForkServer) -> None:
    locked = "from dataclasses import dataclass\n@dataclass(slots=True)\nclass R:\n    a: int"
    answer = "def f(x):\n    y = x.a\n    x.a = 100\n    return y"
    test = "r = R(3)\nassert f(r) == 3"
    assert examine(server, test, answer, locked=locked).points == 4


@pytest.mark.parametrize("base", ["dict", "list", "set", "__import__('collections').OrderedDict"])
def test_an_answer_that_is_a_class_may_extend_a_container(server: ForkServer, base: str) -> None:
    source = [
        cell("class Tally:\n    def see(self): return 1", grade_id="Tally", solution=True),
        cell("tally = Tally()\nassert tally.see() == 1 and tally.see() == 2", grade_id="t", grade=True, points=4),
    ]
    answer = f"class Tally({base}):\n    seen = 0\n    def see(self):\n        self.seen += 1\n        return self.seen"
    plan = make_plan(source, [cell(answer, grade_id="Tally", solution=True)])
    contract = examine_submission(server, make_plan(source, source), sandbox=Sandbox()).contract
    assert examine_submission(server, plan, contract, sandbox=Sandbox()).points == 4
