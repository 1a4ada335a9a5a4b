"""The line under a test cell that passed: for whom it is printed, and what it says."""

from __future__ import annotations

import numpy as np
import pytest
import triton
import triton.language as tl
from IPython.core.interactiveshell import InteractiveShell

from mlsys_labkit import checks, cuda
from mlsys_labkit._frontends.progress.catalogue import LabEntry, TaskEntry, Test as Graded, digest
from mlsys_labkit._frontends.progress.notebook_record import NotebookRecord
from mlsys_labkit._frontends.progress.watch import Watcher
from mlsys_labkit.checks import passed
from mlsys_labkit.triton_trace import trace

CELL = "lk.checks.expect_equal(halve(4), 2, name='an even number')\nassert halve(0) == 0"
OWN = CELL + '\nprint("Right: even numbers.")'


@triton.jit
def fill_tile(x, BLOCK: tl.constexpr):
    tl.store(x + tl.arange(0, BLOCK), 1.0)


@pytest.fixture
def watcher() -> Watcher:
    tests = tuple(Graded(name, 5, digest(cell)) for name, cell in (("halve_test", CELL), ("halve_test_own", OWN)))
    lab = LabEntry("lab99_test", "Lab 99", "", (TaskEntry("halve", "Halves", "", (), tests),))
    watcher = Watcher(InteractiveShell())
    watcher.record, watcher._was_attended = NotebookRecord(lab), True
    passed.begin()
    return watcher


def said(watcher: Watcher, capsys: pytest.CaptureFixture[str], source: str = CELL) -> str:
    watcher._say_passed(source, "")
    return str(capsys.readouterr().out)


def test_the_line_names_the_checks_that_passed_once_each(watcher: Watcher, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(3):
        checks.expect_equal(2, 2, name="an even number")
    checks.expect_close(0.1 + 0.2, 0.3)
    checks.expect_raises(ValueError, int, "x")
    assert said(watcher, capsys) == "✓ halve_test passes: an even number; int('x') refuses bad input\n"


def test_the_line_names_a_kernels_checks(watcher: Watcher, capsys: pytest.CaptureFixture[str]) -> None:
    fill = cuda.compile("__global__ void fill(float* x) { x[threadIdx.x] = 1; }", backend="simulator")
    x = np.zeros(32, np.float32)
    checks.expect_clean(fill, (1, 32, (x,)))
    checks.expect_counters(fill.profile[1, 32](x), global_store_sectors=4)
    assert said(watcher, capsys) == "✓ halve_test passes: fill runs without a finding; the counters of fill\n"


def test_the_line_names_a_triton_kernels_checks(watcher: Watcher, capsys: pytest.CaptureFixture[str]) -> None:
    traced = trace(fill_tile)[(1,)](np.zeros(32, np.float32), BLOCK=32)
    checks.expect_no_findings(traced)
    checks.expect_traffic(traced, "x", stored_bytes=128)
    line = "fill_tile runs without a finding; the traffic of x in fill_tile"
    assert said(watcher, capsys) == f"✓ halve_test passes: {line}\n"


def test_twenty_checks_take_one_short_line(watcher: Watcher, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(20):
        checks.expect_equal(number, number, name=f"{number} halves\nof a whole")
    line = said(watcher, capsys)
    assert line.startswith("✓ halve_test passes: 0 halves of a whole; 1 halves of a whole;")
    assert line.endswith(" more\n")
    assert len(line) < 140
    assert line.count("\n") == 1


def test_a_check_that_fails_is_not_named(watcher: Watcher, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(checks.CheckError):
        checks.expect_equal(3, 2, name="an odd number")
    assert said(watcher, capsys) == "✓ halve_test passes\n"


def test_no_line_under_other_cells_or_without_a_person(watcher: Watcher, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(watcher, capsys, "x = 1") == ""
    assert said(watcher, capsys, OWN) == "", "the cell says it itself"
    watcher._was_attended = False
    assert said(watcher, capsys) == "", "nbgrader, papermill, a grader"
