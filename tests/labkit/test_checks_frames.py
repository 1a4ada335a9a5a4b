"""Messages of checks as a student reads them, in IPython and in a grader: no frame of the kit."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest
from IPython.core.interactiveshell import InteractiveShell

from tests.conftest import ROOT

SET_UP = """
import numpy as np, torch
import mlsys_labkit as lk
from mlsys_labkit.work import Work
def broken(*_):
    return {}["missing"]
def stub(*_):
    raise NotImplementedError
def reads(a):
    return [a[i, j] for j in range(64) for i in range(64)]
"""
# A failing call of each check; an exception of the student's own function, which a check calls, shows its own line.
FAILING = [
    "lk.checks.expect_close(np.ones(3), np.zeros(3))",
    "lk.checks.expect_close(torch.ones(3, 2), torch.ones(2, 3))",
    "lk.checks.expect_close(object(), 1.0)",
    "lk.checks.expect_equal([1, [2, 3]], [1, [3, 2]])",
    "lk.checks.expect_equal(np.arange(4), np.arange(4)[::-1])",
    "lk.checks.expect_equal({1: stub}, {1: 2})",
    "lk.checks.expect_raises(ValueError, int, '3')",
    "lk.checks.expect_raises(ValueError, broken)",
    "lk.checks.expect_raises(ValueError, stub)",
    "lk.checks.expect_copy(t := np.ones(3), t)",
    "lk.checks.expect_shares_memory(np.ones(3), np.ones(3))",
    "lk.checks.expect_work(Work(flops=1), flops=2)",
    "lk.checks.expect_peak(np.zeros, 10**5, at_most_bytes=10)",
    "lk.checks.expect_peak(broken, at_most_bytes=10)",
    "lk.checks.expect_peak(stub, at_most_bytes=10)",
    "lk.checks.expect_cache_misses(lk.trace_accesses(reads, np.zeros((64, 64))), at_most=1)",
    "lk.count_work(broken)",
    "lk.count_work(stub)",
    "lk.trace_accesses(broken, np.zeros((2, 2)))",
    "lk.trace_memory(broken)",
    "lk.checks.run_ranks(broken, 2)",
    "lk.checks.run_ranks(stub, 2)",
    "lk.checks.expect_messages(lk.checks.run_ranks(lambda: 1, 2).trace, messages=7)",
    "lk.checks.expect_clean(3)",
    "lk.checks.expect_counters(3)",
    "lk.checks.expect_no_findings(3)",
    "lk.checks.expect_traffic(3, 'x')",
]
FRAME = re.compile(rf"{re.escape(str(ROOT / 'mlsys_labkit'))}|site-packages|raise failure")


@pytest.fixture(scope="module")
def shell() -> InteractiveShell:
    shell = InteractiveShell()
    shell.run_cell(SET_UP)
    return shell


@pytest.mark.parametrize("failing", FAILING)
def test_ipython_shows_no_frame_of_the_kit(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str], failing: str
) -> None:
    assert not shell.run_cell(failing).success
    shown = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
    assert failing in shown
    assert not FRAME.search(shown), shown
    if "broken" in failing:
        assert 'return {}["missing"]' in shown
    if "stub" in failing and "{1" not in failing:
        assert "raise NotImplementedError" in shown


HELPER = """
import torch.distributed as dist
def compare(value):
    __tracebackhide__ = True
    lk.checks.expect_close(value, 2.0)
def to_itself():
    dist.send(torch.ones(2), dst=dist.get_rank())
"""


def test_ipython_leaves_out_hidden_helpers_and_libraries(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    """A notebook's helper that sets ``__tracebackhide__`` has no line, nor has torch below the student's line."""
    shell.run_cell(HELPER)
    shell.run_cell("compare(1.0)")
    shell.run_cell("lk.checks.run_ranks(to_itself, 2)")
    shown = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
    assert "line 1: compare(1.0)" in shown
    assert "expect_close(value" not in shown
    assert "dist.send(torch.ones(2), dst=dist.get_rank())" in shown
    assert "_check_not_self_rank" not in shown


GRADER = """
import json, sys
from mlsys_grading.shell import CellSource, Shell
set_up, *failing = json.load(sys.stdin)
shell = Shell()
shell.run(CellSource(0, "set_up", set_up))
json.dump([shell.run(CellSource(1, "a_test", one, is_test=True)) for one in failing], sys.stdout)
"""


def test_a_grader_keeps_the_message_alone() -> None:
    """One process for all, because the grader's shell takes the place of this process's own."""
    done = subprocess.run(
        [sys.executable, "-c", GRADER], input=json.dumps([SET_UP, *FAILING]), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    ran = json.loads(done.stdout)
    assert len(ran) == len(FAILING)
    for failing, one in zip(FAILING, ran, strict=True):
        assert one["error"], failing
        told = one["error"]["message"]
        assert not FRAME.search(told), told
        assert "Traceback" not in told
        assert [output["traceback"] for output in one["outputs"] if output["output_type"] == "error"] == [[]]
