"""Tests of a kernel that is still a stub: it fails with NotImplementedError, as an unsolved Python function does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import triton
import triton.language as tl

from mlsys_labkit.triton_trace.compile.compiled import compile_for
from mlsys_labkit.triton_trace.errors import TritonUnsolvedError
from mlsys_labkit.triton_trace.raw_accesses import trace_raw


@triton.jit
def stub(x, n, BLOCK: tl.constexpr):
    """Docstring of the stub."""
    # YOUR CODE HERE
    raise NotImplementedError()


@triton.jit
def helper(x):
    raise NotImplementedError


@triton.jit
def calls_a_stub(x, n, BLOCK: tl.constexpr):
    tl.store(x + tl.arange(0, BLOCK), helper(x))


@pytest.mark.parametrize(("kernel", "name"), [(stub, "stub"), (calls_a_stub, "helper")])
def test_trace_of_unsolved_kernel_raises_unsolved_error(kernel: Any, name: str) -> None:
    with pytest.raises(NotImplementedError, match=rf"{name} is not written yet: line \d+ of test_unsolved.py"):
        trace_raw(kernel)[1,](np.zeros(4, np.float32), 4, BLOCK=4)


def test_launch_of_unsolved_kernel_raises_unsolved_error() -> None:
    with pytest.raises(TritonUnsolvedError):
        stub[1,](np.zeros(4, np.float32), 4, BLOCK=4)


def test_compile_for_unsolved_kernel_raises_unsolved_error() -> None:
    with pytest.raises(TritonUnsolvedError):
        compile_for(stub, "sm_90", np.zeros(4, np.float32), 4, BLOCK=4)
