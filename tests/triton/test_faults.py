"""Tests of checks on arrays that a kernel with an error stored to: they name the error before the wrong value."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from mlsys_labkit.checks import expect_close
from mlsys_labkit.triton_trace import trace


@triton.jit
def sums(x, out, n, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(out + i, tl.sum(tl.load(x + i), 0), mask=i < n)


def wrong(actual: Any) -> str:
    with pytest.raises(AssertionError) as caught:
        expect_close(actual, [9.0] * 5, name="the sums")
    return str(caught.value)


@pytest.mark.parametrize("library", [np, torch], ids=lambda one: one.__name__)
def test_check_names_the_unmasked_load_before_the_wrong_value(library: Any) -> None:
    x, out = library.ones(5, dtype=library.float32), library.zeros(5, dtype=library.float32)
    trace(sums)[1,](x, out, 5, B=8)
    for values in (out, out[:5], out.reshape(1, 5)[0]):
        lines = wrong(values).splitlines()
        assert lines[0].startswith("the sums: out of bounds in sums, and the values are wrong")
        assert "reads x[5], and x has 5 elements (3 such accesses; give it a mask)" in wrong(values)
        assert "test_faults.py line 20: tl.store(out + i" in wrong(values)
    assert "in sums" not in wrong(library.ones(5, dtype=library.float32))
    assert "in sums" not in wrong(x)
    trace(sums)[1,](library.ones(8, dtype=library.float32), out, 5, B=8)
    assert "in sums" not in wrong(out)  # the last launch had no error
