"""The error of a task that is not written yet, as a student reads it in IPython."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from IPython.core.interactiveshell import InteractiveShell

from mlsys_labkit.magics import load_ipython_extension, unload_ipython_extension

SET_UP = """
import torch, triton, triton.language as tl
import mlsys_labkit as lk
import mlsys_labkit.triton_trace
def shift(*_):
    # YOUR CODE HERE
    raise NotImplementedError()
class Pool:
    def take(self):
        # YOUR CODE HERE
        raise NotImplementedError()
@triton.jit
def add(x, BLOCK: tl.constexpr):
    # YOUR CODE HERE
    raise NotImplementedError()
def operator():
    raise NotImplementedError("'aten::foo' is not implemented for the CPU")
def abstract():
    raise NotImplementedError
"""


@pytest.fixture
def shell() -> Iterator[InteractiveShell]:
    shell = InteractiveShell()
    load_ipython_extension(shell)
    assert shell.run_cell(SET_UP).success
    yield shell
    unload_ipython_extension(shell)


def shown(shell: InteractiveShell, capsys: pytest.CaptureFixture[str], cell: str) -> str:
    capsys.readouterr()
    result = shell.run_cell(cell)
    assert isinstance(result.error_in_exec, NotImplementedError)
    return re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out).strip()


def test_a_stub_shows_one_line_with_its_name(shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
    for cell, name in {
        "shift(1)": "shift",
        "lk.checks.expect_close(shift(1), 2.0)": "shift",
        "lk.checks.expect_raises(ValueError, shift, 1)": "shift",
        "lk.checks.expect_peak(shift, 1, at_most_bytes=10)": "shift",
        "lk.checks.run_ranks(shift, 2)": "shift",
        "Pool().take()": "Pool.take",
        "lk.triton_trace.trace(add)[(1,)](torch.zeros(4), BLOCK=4)": "add",
        "# YOUR CODE HERE\nraise NotImplementedError()": "this cell",
    }.items():
        lines = shown(shell, capsys, cell).splitlines()
        assert len(lines) == 1, (cell, lines)
        assert lines[0].startswith(f"NotImplementedError: {name} is not written yet"), cell


def test_an_error_that_no_stub_raised_keeps_its_traceback(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    for cell in ("operator()", "abstract()"):
        text = shown(shell, capsys, cell)
        assert "Traceback (most recent call last)" in text, cell
        assert f"line 1: {cell}" in text or f"1 {cell}" in text, text


def test_unload_shows_tracebacks_again(shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
    unload_ipython_extension(shell)
    assert "Traceback" in shown(shell, capsys, "shift(1)")


def test_the_handler_of_another_extension_stays() -> None:
    shell = InteractiveShell()
    shell.set_custom_exc((ZeroDivisionError,), lambda *_: None)
    load_ipython_extension(shell)
    unload_ipython_extension(shell)
    assert shell.custom_exceptions == (ZeroDivisionError,)
