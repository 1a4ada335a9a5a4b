"""Tests of values that a masked load leaves undefined: findings where they matter, and none elsewhere.

The oracle is the meaning of "undefined": each kernel is launched with several values in the masked-off lanes
(``other=FILL``), and the finding of the kernel without ``other`` is right if and only if the results differ.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import triton
import triton.language as tl

from mlsys_labkit.checks import CheckError, expect_no_findings
from mlsys_labkit.triton_trace import TritonKernelError, trace
from mlsys_labkit.triton_trace.launch.client import TritonWorker
from tests.triton import kernels

FILLS = (0.0, 7.0, -3.0)  # the data are between -1 and 1


@triton.jit
def masked(x, i, n, FILL: tl.constexpr):
    return tl.load(x + i, mask=i < n, other=FILL)


@triton.jit
def plus(a, b):
    return a + b


# --- no finding ------------------------------------------------------------------------------------------------------


@triton.jit
def stored_under_the_mask(x, out, n, B: tl.constexpr, FILL: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + i, mask=i < n, other=FILL)
    tl.store(out + i, tl.exp(v) * 2.0 + v, mask=i < n)


@triton.jit
def chosen_before_the_sum(x, out, n, B: tl.constexpr, FILL: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.exp(tl.load(x + i, mask=i < n, other=FILL))
    tl.store(out, tl.sum(tl.where(i < n, v, 0.0), 0))
    tl.store(out + 1, tl.max(tl.where(i < n, v, -1.0), 0))
    tl.store(out + 2 + i, tl.sort(tl.where(i < n, v, 9.0)))


@triton.jit
def in_blocks_of_rows(x, out, n, B: tl.constexpr, FILL: tl.constexpr):
    i, j = tl.arange(0, 4), tl.arange(0, B)
    inside = (i[:, None] < 3) & (j[None, :] < n)
    v = tl.load(x + i[:, None] * 8 + j[None, :], mask=inside, other=FILL)
    w = masked(x, j, n, FILL)
    s = tl.zeros([4, B], tl.float32)
    for _ in range(2):
        s += v * w[None, :]
    tl.store(out + i[:, None] * 8 + j[None, :], s, mask=inside)
    rows = tl.sum(tl.where(j[None, :] < n, v, 0.0), 1)
    tl.store(out + 40 + i, rows, mask=i < 3)
    tl.store(out + 48 + j[:, None] * 0 + i[None, :], tl.trans(s), mask=(j[:, None] == 0) & (i[None, :] < 3))


@triton.jit
def scan_up_to_the_mask(x, out, n, B: tl.constexpr, FILL: tl.constexpr):
    i = tl.arange(0, B)
    v = masked(x, i, n, FILL)
    tl.store(out + i, tl.cumsum(v, 0) + tl.associative_scan(v, 0, plus), mask=i < n)


@triton.jit
def joined_with_a_mask(x, out, n, B: tl.constexpr, FILL: tl.constexpr):
    i = tl.arange(0, B)
    v = masked(x, i, n, FILL)
    positive = (v > 0) & (i < n)
    tl.store(out + i, 1.0, mask=positive)
    outside = (v > 0) | (i >= n)
    tl.store(out + 16, tl.sum(positive.to(tl.int32), 0) + tl.sum(outside.to(tl.int32), 0))
    tl.store(out + 17, tl.sum((v * 4).to(tl.int32) * (i < n).to(tl.int32), 0))


@triton.jit
def address_of_masked_lanes(x, out, n, B: tl.constexpr, FILL: tl.constexpr):
    i = tl.arange(0, B)
    at = masked(x, i, n, FILL).to(tl.int32) + 1
    v = tl.load(x + at, mask=i < n, other=0.0)
    tl.store(out, tl.sum(v, 0))
    tl.atomic_add(out + 8 + at, v, mask=i < n)


@triton.jit
def product_of_rows(x, out, n, B: tl.constexpr, FILL: tl.constexpr):
    i, j = tl.arange(0, 16), tl.arange(0, 16)
    a = tl.load(x + i[:, None] + j[None, :], mask=(i[:, None] < n), other=FILL)
    b = tl.load(x + i[:, None] + j[None, :])
    tl.store(out + i[:, None] * 16 + j[None, :], tl.dot(a, b), mask=(i[:, None] < n))


@triton.jit
def nothing_masked_off(x, out, n, B: tl.constexpr, FILL: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(out, tl.sum(masked(x, i, n + 3, FILL), 0))


@triton.jit
def branch_of_a_known_value(x, out, n, B: tl.constexpr, FILL: tl.constexpr):
    v = tl.load(x + 1, mask=n > 2, other=FILL)
    w = tl.load(x, mask=n > 20, other=FILL)
    if v > -2.0:
        tl.store(out, v)
        tl.store(out + 1, w, mask=n > 20)


# --- a finding -------------------------------------------------------------------------------------------------------


@triton.jit
def summed(x, out, n, B: tl.constexpr, FILL: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + i, mask=i < n, other=FILL)
    tl.store(out, tl.sum(v, 0))


@triton.jit
def largest(x, out, n, B: tl.constexpr, FILL: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + i, mask=i < n, other=FILL)
    tl.store(out + i, v - tl.max(v, 0), mask=i < n)


@triton.jit
def place_of_the_largest(x, out, n, B: tl.constexpr, FILL: tl.constexpr):
    tl.store(out, tl.argmax(masked(x, tl.arange(0, B), n, FILL), 0))


@triton.jit
def reduced_by_a_helper(x, out, n, B: tl.constexpr, FILL: tl.constexpr):
    tl.store(out, tl.reduce(masked(x, tl.arange(0, B), n, FILL), 0, plus))


@triton.jit
def stored_without_a_mask(x, out, n, B: tl.constexpr, FILL: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(out + i, masked(x, i, n, FILL))


@triton.jit
def stored_under_a_larger_mask(x, out, n, B: tl.constexpr, FILL: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(out + i, masked(x, i, n, FILL) + 1.0, mask=i < n + 1)


@triton.jit
def product_over_the_mask(x, out, n, B: tl.constexpr, FILL: tl.constexpr):
    i, j = tl.arange(0, 16), tl.arange(0, 16)
    a = tl.load(x + i[:, None] + j[None, :], mask=(j[None, :] < n), other=FILL)
    b = tl.load(x + i[:, None] + j[None, :])
    tl.store(out + i[:, None] * 16 + j[None, :], tl.dot(a, b), mask=(i[:, None] < n))


@triton.jit
def scan_from_the_end(x, out, n, B: tl.constexpr, FILL: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(out + i, tl.cumsum(masked(x, i, n, FILL), 0, reverse=True), mask=i < n)


@triton.jit
def sorted_with_the_rest(x, out, n, B: tl.constexpr, FILL: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(out + i, tl.sort(masked(x, i, n, FILL)), mask=i < n)


@triton.jit
def decides_a_choice(x, out, n, B: tl.constexpr, FILL: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(out + i, tl.where(masked(x, i, n, FILL) > 0.5, 1.0, 2.0))


@triton.jit
def decides_a_mask(x, out, n, B: tl.constexpr, FILL: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(out + i, 1.0, mask=masked(x, i, n, FILL) > 2.0)


@triton.jit
def decides_a_branch(x, out, n, B: tl.constexpr, FILL: tl.constexpr):
    v = tl.load(x, mask=n > 20, other=FILL)
    if v > 2.0:
        tl.store(out, 1.0)


@triton.jit
def counts_a_loop(x, out, n, B: tl.constexpr, FILL: tl.constexpr):
    v = tl.load(x, mask=n > 20, other=FILL)
    for k in range(v.to(tl.int32)):
        tl.store(out + k, 1.0)


@triton.jit
def added_by_an_atomic(x, out, n, B: tl.constexpr, FILL: tl.constexpr):
    i = tl.arange(0, B)
    tl.atomic_add(out + i % 2, masked(x, i, n, FILL))


@triton.jit
def address_of_a_store(x, out, n, B: tl.constexpr, FILL: tl.constexpr):
    i = tl.arange(0, B)
    at = masked(x, i, n, FILL).to(tl.int32) + 3
    tl.store(out + at, i)


@triton.jit
def gathered(x, out, n, B: tl.constexpr, FILL: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(out + i, tl.gather(masked(x, i, n, FILL), B - 1 - i, 0), mask=i < n)


@triton.jit
def counted_in_bins(x, out, n, B: tl.constexpr, FILL: tl.constexpr):
    v = masked(x, tl.arange(0, B), n, FILL)
    tl.store(out + tl.arange(0, 16), tl.histogram(v.to(tl.int32) + 4, 16))


@triton.jit
def split_into_halves(x, out, n, B: tl.constexpr, FILL: tl.constexpr):
    v = masked(x, tl.arange(0, B), n, FILL)
    low, high = tl.split(tl.reshape(v, [B // 2, 2]))
    tl.store(out + tl.arange(0, B // 2), tl.join(high, low).reshape([B]).to(tl.float16).sum(0) + low)


@triton.jit
def padding_of_a_load(x, out, n, B: tl.constexpr, FILL: tl.constexpr):
    i = tl.arange(0, B)
    first = masked(x, i, n, FILL)
    tl.store(out, tl.sum(tl.load(x + i, mask=i < n - 1, other=first), 0))


SILENT = (
    stored_under_the_mask,
    chosen_before_the_sum,
    in_blocks_of_rows,
    scan_up_to_the_mask,
    joined_with_a_mask,
    address_of_masked_lanes,
    product_of_rows,
    nothing_masked_off,
    branch_of_a_known_value,
)
FOUND = (
    summed,
    largest,
    place_of_the_largest,
    reduced_by_a_helper,
    stored_without_a_mask,
    stored_under_a_larger_mask,
    product_over_the_mask,
    scan_from_the_end,
    sorted_with_the_rest,
    decides_a_choice,
    decides_a_mask,
    decides_a_branch,
    counts_a_loop,
    added_by_an_atomic,
    address_of_a_store,
    gathered,
    counted_in_bins,
    split_into_halves,
    padding_of_a_load,
)
N = 5


def arrays() -> tuple[Any, Any]:
    return np.linspace(-1, 1, 64, dtype=np.float32)[::-1].copy(), np.zeros(256, np.float32)


def undefined(kernel: Any) -> list[Any]:
    x, out = arrays()
    found = trace(kernel)[1,](x, out, N, B=8, FILL=None).findings
    return [one for one in found if one.kind == "undefined_value"]


def depends(kernel: Any) -> bool:
    """Return whether the result depends on what is in the masked-off lanes."""
    results = []
    for fill in FILLS:
        x, out = arrays()
        kernel[1,](x, out, N, B=8, FILL=fill)
        results.append(out)
    return any(not np.array_equal(results[0], one) for one in results[1:])


def test_undefined_value_is_found_where_it_changes_the_result() -> None:
    wrong = {}
    for kernel in (*SILENT, *FOUND):
        found, expected = bool(undefined(kernel)), depends(kernel)
        assert expected is (kernel in FOUND), f"{kernel.__name__}: the oracle"
        if found is not expected:
            wrong[kernel.__name__] = found
    assert wrong == {}


def test_undefined_value_names_both_lines() -> None:
    (found,) = undefined(largest)
    assert (found.severity, found.count, found.program) == ("error", N, (0, 0, 0))
    load, store = found.line.number, found.other_line.number
    assert found.source_line == "v = tl.load(x + i, mask=i < n, other=FILL)"
    assert (store - load, found.other_source_line) == (1, "tl.store(out + i, v - tl.max(v, 0), mask=i < n)")
    assert found.message == (
        f"program (0, 0, 0) stores a value that depends on a lane which tl.load masks off in line {load}; a GPU has "
        f"any value there ({N} elements in all; give the load other=..., or choose with tl.where first)"
    )
    messages = [undefined(kernel)[0].message for kernel in (decides_a_branch, counts_a_loop, added_by_an_atomic)]
    for message, does in zip(
        messages, ("takes a branch by a", "counts a loop by a", "updates an element"), strict=True
    ):
        assert does in message


def test_undefined_value_ends_a_plain_launch_of_a_cell_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    x, out = arrays()
    TritonWorker.current().close()
    for _ in range(2):
        summed[1,](x, out, N, B=8, FILL=None)
    assert out[0] == pytest.approx(x[:N].sum())
    assert capsys.readouterr().out.count("Note: test_undefined.py line") == 1
    with pytest.raises(CheckError, match=r"undefined value\n"):
        expect_no_findings(trace(summed)[1,](x, out, N, B=8, FILL=None))
    monkeypatch.setattr("mlsys_labkit.triton_trace.source.cell_label", lambda file: "In[1]")
    with pytest.raises(TritonKernelError, match=r"it stores a value that depends on a lane which tl\.load masks off"):
        summed[1,](x, out, N, B=8, FILL=None)


@triton.jit
def block_pointer(x, out, n, B: tl.constexpr, PADDING: tl.constexpr):
    here = tl.make_block_ptr(x, (n,), (1,), (0,), (B,), (0,))
    v = tl.load(here, boundary_check=(0,), padding_option=PADDING)
    tl.store(out, tl.sum(v, 0))


def test_block_pointer_without_padding_gives_no_finding() -> None:
    for padding in ("", "zero"):
        x, out = arrays()
        found = trace(block_pointer)[1,](x, out, N, B=8, PADDING=padding).findings
        assert [one.kind for one in found if one.severity == "error"] == []
        assert out[0] == pytest.approx(x[:N].sum())


@triton.jit
def two_causes(x, out, n, B: tl.constexpr):
    i = tl.arange(0, B)
    scale = tl.load(x + i, mask=i < n)
    total = tl.sum(tl.load(x + i, mask=i < n - 1), 0)
    tl.store(out + i, scale * total, mask=i < n)


def test_undefined_value_names_the_load_that_concerns_most_lanes() -> None:
    x, out = arrays()
    (found, *_) = trace(two_causes)[1,](x, out, N, B=8).findings
    assert (found.kind, found.source_line) == ("undefined_value", "total = tl.sum(tl.load(x + i, mask=i < n - 1), 0)")


def test_undefined_values_are_silent_on_correct_kernels() -> None:
    x, out = np.ones((33, 50), np.float32), np.ones((33, 50), np.float32)
    expect_no_findings(trace(kernels.add)[(7,)](x.ravel(), x.ravel(), out.ravel(), 1650, BLOCK=256))
    expect_no_findings(trace(kernels.bias_gelu)[(3, 4)](x, x[0].copy(), out, 33, 50, BM=16, BN=16))
