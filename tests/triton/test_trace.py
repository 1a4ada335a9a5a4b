"""``trace`` counts what theory says: six kernels, any size, any block."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

triton = pytest.importorskip("triton")
import triton.language as tl  # noqa: E402

from mlsys_labkit.checks import CheckError, ImpossibleCountError, expect_no_findings, expect_traffic  # noqa: E402
from mlsys_labkit.triton_trace import trace, tracing  # noqa: E402


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    a = tl.load(x + i, mask=mask)
    b = tl.load(y + i, mask=mask)
    tl.store(out + i, a + b, mask=mask)


def wrapper(x: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    out = np.empty_like(x)
    add[(triton.cdiv(x.size, 64),)](x, y, out, x.size, BLOCK=64)
    return out


def ones(*shape: int) -> np.ndarray[Any, Any]:
    return np.ones(shape, np.float32)


@given(n=st.integers(1, 700), block=st.sampled_from([16, 64, 256]))
def test_ragged_add(n: int, block: int) -> None:
    programs = math.ceil(n / block)
    x, y, out = ones(n), ones(n), np.zeros(n, np.float32)
    traced = trace(add)[(programs,)](x, y, out, n, BLOCK=block)
    assert (out == 2).all()
    assert (traced.work.bytes_read, traced.work.bytes_written) == (8 * n, 4 * n)
    assert [one.kind for one in traced.accesses] == ["load", "load", "store"]
    for one in traced.accesses:
        assert (one.count, one.elements, one.masked_off) == (programs, n, programs * block - n)
        assert one.bytes_requested == one.program_bytes == one.distinct_bytes == 4 * n
    for name in ("x", "y"):
        expect_traffic(traced, name, loaded_bytes=4 * n, loaded_elements=n, stored_bytes=0, distinct_loaded_bytes=4 * n)
    expect_traffic(traced, "out", stored_bytes=4 * n, loaded_bytes=0, distinct_stored_bytes=4 * n)
    expect_no_findings(traced, performance=True)


def test_launches_of_ones_own_functions() -> None:
    with tracing() as traces:
        result = wrapper(ones(100), ones(100))
    wrapper(ones(100), ones(100))
    assert (result == 2).all()
    assert [(one.kernel, one.programs, one.work.bytes_written) for one in traces] == [("add", 2, 400)]


def test_checks_say_what_is_wrong() -> None:
    traced = trace(add)[(2,)](ones(100), ones(100), ones(100), 100, BLOCK=64)
    with pytest.raises(ImpossibleCountError, match=r"loaded bytes of x: fewer than.*\n.*at least 404\n.*400"):
        expect_traffic(traced, "x", loaded_bytes=404)
    with pytest.raises(CheckError, match=r"too many\n  expected  at most 200\n  actual    400 \(2x\)\n.*test_trace.py"):
        expect_traffic(traced, "out", at_most_stored_bytes=200)
    with pytest.raises(TypeError, match="no array 'z'; it has x, y, out"):
        expect_traffic(traced, "z", loaded_bytes=1)
    with pytest.raises(TypeError, match="no figure 'read'"):
        expect_traffic(traced, "x", read=1)
