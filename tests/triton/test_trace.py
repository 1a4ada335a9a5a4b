"""Tests of ``trace`` against counts from theory: six kernels, any size, any block."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

triton = pytest.importorskip("triton")
import triton.language as tl  # noqa: E402

from mlsys_labkit.checks import CheckError, ImpossibleCountError, expect_no_findings, expect_traffic  # noqa: E402
from mlsys_labkit.triton_trace import LaunchTrace, trace, tracing  # noqa: E402
from mlsys_labkit.triton_trace.errors import TritonKernelError, TritonLaunchError, TritonTraceError  # noqa: E402
from mlsys_labkit.triton_trace.raw_accesses import trace_raw  # noqa: E402
from tests.triton import kernels  # noqa: E402

Array = np.ndarray[Any, Any]
few = settings(max_examples=15)


def zeros(*shape: int) -> Array:
    return np.zeros(shape, np.float32)


def random(*shape: int) -> Array:
    return np.random.default_rng(0).random(shape, np.float32)


@few
@given(n=st.integers(1, 700), block=st.sampled_from([16, 64, 256]))
def test_trace_counts_ragged_add(n: int, block: int) -> None:
    programs = math.ceil(n / block)
    x, y, out = random(n), random(n), zeros(n)
    traced = trace(kernels.add)[(programs,)](x, y, out, n, BLOCK=block)
    np.testing.assert_array_equal(out, x + y)
    assert (traced.work.bytes_read, traced.work.bytes_written) == (8 * n, 4 * n)
    assert (traced.work.flops, traced.dot_flops) == (programs * block, 0)  # all lanes add, the masked-off ones too
    assert [one.kind for one in traced.accesses] == ["load", "load", "store"]
    for one in traced.accesses:
        assert (one.count, one.elements, one.masked_off) == (programs, n, programs * block - n)
        assert one.bytes_requested == one.program_bytes == one.distinct_bytes == 4 * n
    for name in ("x", "y"):
        expect_traffic(traced, name, loaded_bytes=4 * n, loaded_elements=n, stored_bytes=0, distinct_loaded_bytes=4 * n)
    expect_traffic(traced, "out", stored_bytes=4 * n, loaded_bytes=0, distinct_stored_bytes=4 * n)
    expect_no_findings(traced, performance=True)


@few
@given(rows=st.integers(1, 9), columns=st.integers(1, 40), pad=st.integers(0, 5))
def test_trace_counts_masked_softmax(rows: int, columns: int, pad: int) -> None:
    x, out = random(rows, columns + pad)[:, :columns], zeros(rows, columns)
    block = triton.next_power_of_2(columns)
    traced = trace(kernels.softmax)[(rows,)](x, out, columns, columns + pad, columns, BLOCK=block)
    powers = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(out, powers / powers.sum(1, keepdims=True), rtol=1e-5)
    size = 4 * rows * columns
    expect_traffic(traced, "x", loaded_bytes=size, distinct_loaded_bytes=size)
    expect_traffic(traced, "out", stored_bytes=size, distinct_stored_bytes=size)
    assert {one.masked_off for one in traced.accesses} == {rows * (block - columns)}
    assert traced.work.flops == rows * (5 * block - 2)  # max, subtract, exp, add up, divide
    assert traced.findings == ()


@few
@given(
    m=st.integers(1, 70),
    n=st.integers(1, 70),
    k=st.integers(1, 70),
    tiles=st.tuples(*[st.sampled_from([16, 32])] * 3),
    group=st.sampled_from([0, 1, 2, 3]),
)
def test_trace_counts_ragged_matmul(m: int, n: int, k: int, tiles: tuple[int, int, int], group: int) -> None:
    bm, bn, bk = tiles
    a, b, c = random(m, k), random(k, n), zeros(m, n)
    down, across = math.ceil(m / bm), math.ceil(n / bn)
    kernel, constants = (kernels.grouped_matmul, {"GROUP": group}) if group else (kernels.matmul, {})
    traced = trace(kernel)[(down * across,)](a, b, c, m, n, k, BM=bm, BN=bn, BK=bk, **constants)
    np.testing.assert_allclose(c, a @ b, rtol=1e-4)
    expect_traffic(traced, "a", loaded_bytes=4 * m * k * across, distinct_loaded_bytes=4 * m * k)
    expect_traffic(traced, "b", loaded_bytes=4 * k * n * down, distinct_loaded_bytes=4 * k * n)
    expect_traffic(traced, "c", stored_bytes=4 * m * n, distinct_stored_bytes=4 * m * n, loaded_bytes=0)
    for one in traced.accesses:
        assert one.bytes_requested == one.program_bytes  # a program loads no element twice
    assert traced.work.flops == traced.dot_flops == 2 * down * bm * across * bn * math.ceil(k / bk) * bk
    assert traced.findings == ()


@few
@given(rows=st.integers(1, 40), columns=st.integers(1, 40))
def test_trace_counts_bias_gelu(rows: int, columns: int) -> None:
    x, bias, out = random(rows, columns), random(columns), zeros(rows, columns)
    down, across = math.ceil(rows / 16), math.ceil(columns / 16)
    traced = trace(kernels.bias_gelu)[(down, across)](x, bias, out, rows, columns, BM=16, BN=16)
    z = x + bias
    np.testing.assert_allclose(out, z * (0.5 + 0.5 * np.vectorize(math.erf)(z / math.sqrt(2))), rtol=1e-5)
    expect_traffic(traced, "x", loaded_bytes=4 * rows * columns, distinct_loaded_bytes=4 * rows * columns)
    expect_traffic(traced, "bias", loaded_bytes=4 * columns * down, distinct_loaded_bytes=4 * columns)
    expect_traffic(traced, "out", stored_bytes=4 * rows * columns)
    assert traced.work.flops == down * 16 * across * 16 * 6  # add, halve, scale, erf, add, multiply
    assert traced.findings == ()


@few
@given(n=st.integers(1, 300), bins=st.integers(1, 40))
def test_trace_counts_atomic_histogram(n: int, bins: int) -> None:
    x = np.random.default_rng(n).integers(0, bins, n).astype(np.int32)
    counts = np.zeros(bins, np.int32)
    programs = math.ceil(n / 64)
    traced = trace(kernels.histogram)[(programs,)](x, counts, n, BLOCK=64)
    np.testing.assert_array_equal(counts, np.bincount(x, minlength=bins))
    hit = 4 * int(np.count_nonzero(counts))
    expect_traffic(traced, "x", loaded_bytes=4 * n)
    expect_traffic(
        traced,
        "counts",
        loaded_bytes=4 * n,
        stored_bytes=4 * n,
        distinct_loaded_bytes=hit,
        distinct_stored_bytes=hit,
    )
    atomic = next(one for one in traced.accesses if one.kind == "atomic")
    own = 4 * sum(np.unique(part).size for part in np.split(x, range(64, n, 64)))
    assert (atomic.elements, atomic.program_bytes, atomic.distinct_bytes) == (n, own, hit)
    assert traced.work.flops == 0
    assert traced.findings == ()


@triton.jit
def wander(x, index, halves, out, n, STEP: tl.constexpr, BLOCK: tl.constexpr):
    """Gather, access two arrays at one place, read halves as bytes, and mask off one block completely."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    at = tl.load(index + i, mask=i < n, other=0)
    total = tl.load(x + at)
    total += tl.load(tl.where(at % 2 == 0, x + at, out + i), mask=(i < n) & (at % 3 > 0), other=0.0)
    for j in range(3):
        total += tl.load(x + (at + j * STEP) % 50)
    total += tl.load(halves.to(tl.pointer_type(tl.uint8)) + i % 7).to(tl.float32)
    total += tl.load(halves + i % 5, mask=i < 0, other=0.0).to(tl.float32)
    total += tl.load(halves + i % 5).to(tl.float32)
    tl.store(out + i, total, mask=i < n)


@few
@given(seed=st.integers(0, 2**32 - 1), n=st.integers(1, 90), step=st.integers(0, 3))
def test_trace_counts_equal_sums_over_raw_accesses(seed: int, n: int, step: int) -> None:
    """The oracle is sets of bytes, collected from the raw accesses one element at a time."""
    rng = np.random.default_rng(seed)
    x, halves = random(60), random(5).astype(np.float16)
    arguments = x, rng.integers(0, 50, n).astype(np.int32), halves, zeros(n), n
    grid = (math.ceil(n / 16),)
    traced = trace(wander)[grid](*arguments, STEP=step, BLOCK=16)
    asked: dict[tuple[int, str, int], int] = defaultdict(int)
    own: dict[tuple[int, str, int], set[tuple[int, int]]] = defaultdict(set)
    masked: dict[int, int] = defaultdict(int)
    for one in trace_raw(wander)[grid](*arguments, STEP=step, BLOCK=16):
        on = np.ones(one.addresses.shape, bool) if one.mask is None else one.mask
        masked[one.line.number] += int((~on).sum())
        for address in one.addresses[on].tolist():
            key = one.line.number, one.kind, address >> 40
            asked[key] += one.itemsize
            own[key] |= {(one.program[0], address + byte) for byte in range(one.itemsize)}
    names = ("x", "index", "halves", "out")
    for key, amount in asked.items():
        (access,) = [
            one
            for one in traced.accesses
            if (one.line.number, one.kind, one.array) == (*key[:2], names[key[2] - 1]) and one.bytes_requested
        ]
        assert access.bytes_requested == amount
        assert access.program_bytes == len(own[key])
        assert access.distinct_bytes == len({address for _, address in own[key]})
    assert sum(one.bytes_requested for one in traced.accesses) == sum(asked.values())
    for line, lanes in masked.items():
        assert sum(one.masked_off for one in traced.accesses if one.line.number == line) == lanes
    for number, name in enumerate(names, 1):
        for kind, figure in (("load", "loaded"), ("store", "stored")):
            touched = {at for key, pairs in own.items() if key[1:] == (kind, number) for _, at in pairs}
            assert getattr(traced.arrays[name], f"distinct_{figure}_bytes") == len(touched)


def test_trace_counts_each_of_overlapping_arrays() -> None:
    whole = random(100)
    traced = trace(kernels.add)[(2,)](whole[:60], whole[40:], whole[:60], 60, BLOCK=32)
    assert traced.arrays["x"].loaded_bytes == 4 * (60 + 20)  # and what is loaded as y's first 20
    assert traced.arrays["y"].loaded_bytes == 4 * (60 + 20)
    assert traced.arrays["out"].stored_bytes == 4 * 60
    assert traced.arrays["y"].stored_bytes == 4 * 20


@triton.jit
def same_block(x, y, BLOCK: tl.constexpr):
    tl.store(y, tl.sum(tl.load(x + tl.arange(0, BLOCK)), axis=0))


def test_trace_counts_block_over_two_arrays_in_both() -> None:
    whole = random(16)
    traced = trace(same_block)[(3,)](whole[:10], whole[6:], BLOCK=16)
    assert (traced.arrays["x"].loaded_elements, traced.arrays["y"].loaded_elements) == (30, 30)
    assert (traced.arrays["x"].distinct_loaded_bytes, traced.arrays["y"].distinct_loaded_bytes) == (40, 40)


def ones_of(n: int) -> Array:
    out = np.empty(n, np.float32)
    kernels.add[(triton.cdiv(n, 64),)](np.ones(n, np.float32), zeros(n), out, n, BLOCK=64)
    return out


def test_tracing_collects_launches_inside_functions() -> None:
    with tracing() as traces:
        result = ones_of(100)
        ones_of(10)
    ones_of(100)
    assert (result == 1).all()
    assert [(one.kernel, one.programs, one.work.bytes_written) for one in traces] == [("add", 2, 400), ("add", 1, 40)]


def test_trace_of_empty_grid() -> None:
    traced = trace(kernels.add)[(0,)](zeros(1), zeros(1), zeros(1), 1, BLOCK=16)
    assert (traced.programs, traced.work.bytes_moved, traced.accesses, traced.findings) == (0, 0, (), ())
    idle = trace(kernels.add)[(1,)](zeros(1), zeros(1), zeros(1), 0, BLOCK=16)
    assert [(one.elements, one.masked_off) for one in idle.accesses] == [(0, 16)] * 3
    assert idle.l2_bytes(1 << 20) == 0


@pytest.mark.parametrize(
    ("grid", "says"),
    [
        ((100 / 64,), r"whole numbers, got 1\.5625; round up with triton\.cdiv"),
        (2.5, r"got 2\.5"),
        (("2",), "got '2'"),
        ((True,), "got True"),
        (lambda meta: (1, 1, 1, 1), "1 to 3 numbers"),
    ],
)
def test_a_grid_that_is_no_whole_number_is_refused(grid: Any, says: str) -> None:
    """Triton's own launcher takes integers only; a part of a program would be dropped in silence."""
    with pytest.raises(TritonLaunchError, match=says):
        kernels.add[grid](zeros(1), zeros(1), zeros(1), 1, BLOCK=16)


@triton.jit
def fails(x):
    tl.device_assert(tl.program_id(0) < 2)
    tl.store(x, 1.0)


def test_tracing_keeps_no_trace_of_failed_launch() -> None:
    with pytest.raises(TritonKernelError, match=r"program \(2, 0, 0\)"):
        trace(fails)[(3,)](zeros(1))


def small() -> LaunchTrace:
    return trace(kernels.add)[(2,)](zeros(100), zeros(100), zeros(100), 100, BLOCK=64)


def test_checks_report_failures() -> None:
    traced = small()
    with pytest.raises(ImpossibleCountError, match=r"loaded bytes of x: fewer than.*\n.*at least 404\n.*400"):
        expect_traffic(traced, "x", loaded_bytes=404)
    with pytest.raises(ImpossibleCountError, match="at least 101"):
        expect_traffic(traced, "x", at_least_loaded_elements=101)
    with pytest.raises(CheckError, match=r"too many\n  expected  at most 200\n  actual    400 \(2x\)\n.*kernels.py"):
        expect_traffic(traced, "out", at_most_stored_bytes=200)
    expect_traffic(traced, "out", at_most_stored_bytes=400, at_least_stored_bytes=400)
    with pytest.raises(TypeError, match="no array 'z'; it has x, y, out"):
        expect_traffic(traced, "z", loaded_bytes=1)
    with pytest.raises(TypeError, match="no figure 'read'"):
        expect_traffic(traced, "x", read=1)
    with pytest.raises(CheckError, match="not a trace"):
        expect_traffic(object(), "x", loaded_bytes=1)
    with pytest.raises(TritonTraceError, match="at least 1 program"):
        traced.l2_bytes(1024, programs_at_once=0)


def test_trace_prints_table_and_html() -> None:
    traced = trace(kernels.add)[(2,)](zeros(100)[:99], zeros(100), zeros(100), 100, BLOCK=64)
    text, page = str(traced), traced._repr_html_()
    note = "a program once: a byte counts once for each program"
    for shown in (
        "add, grid 2: 2 programs",
        "a = tl.load(x + i, mask=mask)",
        "out of bounds",
        "not measured on a GPU",
        note,
    ):
        assert shown in text
        assert shown in page
    assert "<script" not in page
