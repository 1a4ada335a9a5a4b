"""A kernel that nobody has written yet fails as an unsolved Python function does: with NotImplementedError."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import triton
import triton.language as tl

from mlsys_labkit.triton_trace.compiled import compile_for
from mlsys_labkit.triton_trace.errors import UnsolvedError
from mlsys_labkit.triton_trace.raw import trace_raw


@triton.jit
def stub(x, n, BLOCK: tl.constexpr):
    """What it is to do."""
    # YOUR CODE HERE
    raise NotImplementedError()


@triton.jit
def helper(x):
    raise NotImplementedError


@triton.jit
def calls_a_stub(x, n, BLOCK: tl.constexpr):
    tl.store(x + tl.arange(0, BLOCK), helper(x))


@pytest.mark.parametrize(("kernel", "name"), [(stub, "stub"), (calls_a_stub, "helper")])
def test_a_stub_says_that_it_is_one(kernel: Any, name: str) -> None:
    with pytest.raises(NotImplementedError, match=rf"{name} is not written yet: line \d+ of test_unsolved.py"):
        trace_raw(kernel)[1,](np.zeros(4, np.float32), 4, BLOCK=4)


def test_a_plain_launch_says_so_too() -> None:
    with pytest.raises(UnsolvedError):
        stub[1,](np.zeros(4, np.float32), 4, BLOCK=4)


def test_compiling_it_says_so_too() -> None:
    with pytest.raises(UnsolvedError):
        compile_for(stub, "sm_90", np.zeros(4, np.float32), 4, BLOCK=4)
