"""The magics do what their function twins do, in a real IPython shell."""

from __future__ import annotations

import importlib
from collections.abc import Iterator

import numpy as np
import pytest
from IPython.core.interactiveshell import InteractiveShell

from mlsys_labkit.errors import LabkitError
from mlsys_labkit.memory import MemoryTrace
from mlsys_labkit.timing import Timing


@pytest.fixture
def shell() -> Iterator[InteractiveShell]:
    shell = InteractiveShell()
    shell.run_line_magic("load_ext", "mlsys_labkit")
    yield shell
    shell.run_line_magic("unload_ext", "mlsys_labkit")


def test_work_counts_a_matmul_and_places_it(shell: InteractiveShell) -> None:
    left = shell.user_ns["left"] = np.ones((30, 20), np.float32)
    shell.user_ns["right"] = np.ones((20, 10), np.float32)
    placement = shell.run_cell_magic("work", "h100-sxm", "out = left @ right\n")
    assert placement.work.flops == 2 * 30 * 20 * 10
    assert placement.work.bytes_moved == 4 * (30 * 20 + 20 * 10 + 30 * 10)
    assert placement.bound == "memory"
    assert shell.user_ns["left"] is left, "the student's array is the student's again"
    assert type(shell.user_ns["out"]) is np.ndarray
    assert shell.user_ns["out"].shape == (30, 10)


def test_work_leaves_plain_numbers_and_arrays(shell: InteractiveShell) -> None:
    shell.user_ns["x"] = np.arange(4.0)
    shell.run_cell_magic("work", "h100-sxm", "total = x.sum()\nview = x[1:]\nx = x * 2\n")
    assert [type(shell.user_ns[name]) for name in ("total", "view", "x")] == [np.float64, np.ndarray, np.ndarray]
    assert shell.user_ns["view"].tolist() == [1, 2, 3]
    assert shell.user_ns["x"].tolist() == [0, 2, 4, 6]


def test_work_gives_arrays_back_after_an_error(shell: InteractiveShell) -> None:
    left = shell.user_ns["left"] = np.ones((3, 4))
    with pytest.raises(ValueError, match="matmul"):
        shell.run_cell_magic("work", "h100-sxm", "left @ left\n")
    assert shell.user_ns["left"] is left


def test_work_magic_counts_torch(shell: InteractiveShell) -> None:
    torch = pytest.importorskip("torch")
    shell.user_ns["t"] = torch.ones(8, 8)
    assert shell.run_cell_magic("work", "h100-sxm", "t @ t\n").work.flops == 2 * 8**3


def test_trace_memory_keeps_its_trace(shell: InteractiveShell) -> None:
    shell.user_ns["np"] = np
    shell.run_cell_magic("trace_memory", "seen", "a = np.ones(100_000)\nb = a + 1\n")
    trace = shell.user_ns["seen"]
    assert isinstance(trace, MemoryTrace)
    assert 1_600_000 <= trace.peak_bytes < 1_700_000
    assert shell.user_ns["b"][0] == 2


def test_trace_memory_magic_refuses_a_missing_name(shell: InteractiveShell) -> None:
    with pytest.raises(LabkitError, match="'2 words' is not one"):
        shell.run_cell_magic("trace_memory", "2 words", "ran = True\n")
    assert "ran" not in shell.user_ns, "refused before an hour's run, not after it"


def test_work_magic_refuses_an_unknown_device(shell: InteractiveShell) -> None:
    with pytest.raises(LabkitError, match="h100-sxm"):
        shell.run_cell_magic("work", "h100-smx", "ran = True\n")
    assert "ran" not in shell.user_ns


def test_bench_times_a_statement(shell: InteractiveShell) -> None:
    timing = shell.run_line_magic("bench", "-s 0.05 sum(range(1000))")
    assert isinstance(timing, Timing)
    assert timing.median > 0
    assert timing.name == "sum(range(1000))"
    assert shell.run_line_magic("bench", "-s 0.05 sum(range(10))  # it's short").median > 0


@pytest.mark.parametrize(
    ("line", "message"),
    [("", "%bench needs a statement"), ("-s soon f()", "%bench -s takes seconds"), ("-s 0.5", "a statement")],
)
def test_bench_magic_explains_its_arguments(shell: InteractiveShell, line: str, message: str) -> None:
    with pytest.raises(LabkitError, match=message):
        shell.run_line_magic("bench", line)


def test_last_expression_shows_as_in_a_plain_cell(shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
    shell.run_cell_magic("trace_memory", "", "1 + 1\n")  # and no error, though there is next to nothing to show
    assert "2" in capsys.readouterr().out


def test_more_events_than_a_timeline_holds_are_a_table(
    shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.import_module("mlsys_labkit.widgets.memory_timeline"), "MOST_EVENTS", 10)
    shell.run_cell("import torch")
    shown = shell.run_cell_magic("trace_memory", "", "for _ in range(10):\n    torch.zeros(10)\n")
    assert len(shown.events) >= 20
    assert "peak" in str(shown)


@pytest.mark.parametrize("call", ["lk.hint('ofset')", "lk.Roofline.from_spec('h100')", "lk.checks.expect_equal(1, 2)"])
def test_an_error_of_the_kit_is_the_readers_line_and_the_message(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str], call: str
) -> None:
    shell.run_cell("import mlsys_labkit as lk")
    shell.run_cell(call)
    shown = capsys.readouterr().out
    assert call in shown
    assert "Error" in shown
    assert "mlsys_labkit/" not in shown, "no frames of the kit"
