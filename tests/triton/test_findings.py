"""Tests of findings: each kind of wrong kernel, with line, program and element, and correct kernels without any."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from IPython.lib.pretty import pretty

triton = pytest.importorskip("triton")
import triton.language as tl  # noqa: E402

from mlsys_labkit.checks import CheckError, expect_no_findings  # noqa: E402
from mlsys_labkit.triton_trace import AccessFinding, trace  # noqa: E402
from mlsys_labkit.triton_trace.source import KernelSource  # noqa: E402
from tests.triton import kernels  # noqa: E402

Array = np.ndarray[Any, Any]


def ones(*shape: int) -> Array:
    return np.ones(shape, np.float32)


def kinds(found: tuple[AccessFinding, ...]) -> list[str]:
    return [one.kind for one in found]


def number(kernel: Any, text: str) -> int:
    """Return the line of a kernel that holds ``text``."""
    entry = KernelSource.of(kernel).entry
    (line,) = [i for i, one in enumerate(entry.text.splitlines()) if text in one]
    return entry.first_line + line


@triton.jit
def add_without_mask(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(x + i)
    tl.store(out + i, a + tl.load(y + i, mask=i < n), mask=i < n)


def test_finding_missing_mask() -> None:
    traced = trace(add_without_mask)[(4,)](ones(100), ones(100), ones(100), 100, BLOCK=32)
    (found,) = traced.findings
    assert (found.kind, found.severity, found.array, found.element) == ("out_of_bounds", "error", "x", 100)
    assert (found.program, found.count) == ((3, 0, 0), 28)
    assert found.line == ("test_findings.py", number(add_without_mask, "a = tl.load"))
    assert found.source_line == "a = tl.load(x + i)"
    assert "give it a mask" in found.message
    assert traced.arrays["x"].loaded_elements == 100  # what lies outside was not loaded
    with pytest.raises(CheckError, match=r"out of bounds\n.*no finding\n.*reads x\[100\]"):
        expect_no_findings(traced)


def test_finding_one_program_too_many() -> None:
    (found, *_) = trace(add_without_mask)[(4,)](ones(96), ones(96), ones(96), 96, BLOCK=32).findings
    assert (found.kind, found.element, found.program) == ("out_of_bounds", 96, (3, 0, 0))
    assert "check the offset, or the grid" in found.message


@triton.jit
def copy_rows(x, out, columns, x_stride, out_stride, BLOCK: tl.constexpr):
    j = tl.arange(0, BLOCK)
    row = tl.load(x + tl.program_id(0) * x_stride + j, mask=j < columns)
    tl.store(out + tl.program_id(0) * out_stride + j, row, mask=j < columns)


def test_finding_wrong_stride_of_padded_array() -> None:
    padded = ones(8, 20)[:, :12]
    (found,) = trace(copy_rows)[(8,)](padded, ones(8, 12), 12, 12, 12, BLOCK=16).findings
    assert (found.kind, found.array, found.element, found.program) == ("wrong_stride", "x", 12, (1, 0, 0))
    # Rows of 12 at multiples of 12, where rows of 20 hold 12 elements and 8 of padding.
    assert found.count == sum(at % 20 >= 12 for at in range(8 * 12) if at < 7 * 20 + 12)
    assert trace(copy_rows)[(8,)](padded, ones(8, 12), 12, 20, 12, BLOCK=16).findings == ()


def test_finding_stride_too_large() -> None:
    found = trace(copy_rows)[(8,)](ones(8, 12), ones(8, 12), 12, 13, 12, BLOCK=16).findings
    assert kinds(found) == ["wrong_stride"]
    assert (found[0].element, found[0].count, found[0].program) == (96, 7 * 13 + 12 - 96, (7, 0, 0))


def test_finding_stride_too_small() -> None:
    found = trace(copy_rows)[(8,)](ones(8, 12), ones(8, 12), 12, 12, 11, BLOCK=16).findings
    assert kinds(found) == ["race", "unwritten"]
    assert (found[0].array, found[0].element, found[0].count) == ("out", 11, 7)  # last of one row, first of the next
    assert (found[0].program, found[0].other_program) == ((0, 0, 0), (1, 0, 0))
    assert (found[1].severity, found[1].element, found[1].count) == ("information", 7 * 11 + 12, 96 - 7 * 11 - 12)


@triton.jit
def normalize_twice_loaded(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    largest = tl.max(tl.load(x + i, mask=i < n, other=0.0), axis=0)
    again = tl.load(x + i, mask=i < n)
    tl.store(out + i, again / largest, mask=i < n)


def test_finding_repeated_load() -> None:
    traced = trace(normalize_twice_loaded)[(4,)](ones(100), ones(100), 100, BLOCK=32)
    (found,) = traced.findings
    assert (found.kind, found.severity, found.array, found.count) == ("repeated_load", "performance", "x", 100)
    first, second = number(normalize_twice_loaded, "largest ="), number(normalize_twice_loaded, "again =")
    assert (found.line.number, found.other_line.number) == (first, second)
    assert traced.arrays["x"].loaded_bytes == 2 * traced.arrays["x"].distinct_loaded_bytes == 800
    expect_no_findings(traced)
    with pytest.raises(CheckError, match="each of 4 programs loads bytes of x"):
        expect_no_findings(traced, performance=True)


@triton.jit
def sum_without_atomic(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    part = tl.sum(tl.load(x + i, mask=i < n, other=0.0), axis=0)
    before = tl.load(out)
    tl.store(out, before + part)


def test_finding_race_of_two_stores() -> None:
    found = trace(sum_without_atomic)[(4,)](ones(100), ones(1), 100, BLOCK=32).findings
    assert kinds(found) == ["race", "race"]
    load, store = number(sum_without_atomic, "before ="), number(sum_without_atomic, "tl.store")
    assert {(one.line.number, one.other_line.number) for one in found} == {(store, load), (store, store)}
    assert {(one.program, one.other_program) for one in found} == {((0, 0, 0), (1, 0, 0))}
    assert {(one.array, one.element, one.count) for one in found} == {("out", 0, 1)}


@triton.jit
def shifted(x, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + i, tl.load(x + i + 1, mask=i + 1 < n, other=0.0), mask=i < n)


@pytest.mark.parametrize("order", ["ascending", "reversed", 3])
def test_finding_race_of_load_and_store(order: Any) -> None:
    (found,) = trace(shifted, order=order)[(4,)](ones(128), 128, BLOCK=32).findings
    assert (found.kind, found.count) == ("race", 3)  # the first element of all blocks but one
    assert abs(found.program[0] - found.other_program[0]) == 1
    assert trace(shifted)[(1,)](ones(128), 128, BLOCK=128).findings == ()


@triton.jit
def everybody_writes_the_same(out, BLOCK: tl.constexpr):
    tl.store(out + tl.arange(0, BLOCK), 1.0)


def test_finding_race_of_stores_with_equal_values() -> None:
    assert kinds(trace(everybody_writes_the_same)[(2,)](ones(16), BLOCK=16).findings) == ["race"]
    assert trace(everybody_writes_the_same)[(1,)](ones(16), BLOCK=16).findings == ()


@triton.jit
def plain_beside_atomic(out, ATOMIC_FIRST: tl.constexpr):
    if tl.program_id(0) == 0:
        if ATOMIC_FIRST:
            tl.atomic_add(out, 1.0)
        else:
            tl.store(out, 1.0)
    else:
        if ATOMIC_FIRST:
            tl.store(out, 1.0)
        else:
            tl.atomic_add(out, 1.0)


@pytest.mark.parametrize("first", [True, False])
def test_finding_race_of_atomic_and_plain_store(first: bool) -> None:
    assert kinds(trace(plain_beside_atomic)[(2,)](ones(1), ATOMIC_FIRST=first).findings) == ["race"]


@triton.jit
def sum_under_lock(x, out, lock, n, LOCK: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    part = tl.sum(tl.load(x + i, mask=i < n, other=0.0), axis=0)
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    tl.store(out, tl.load(out) + part)
    tl.atomic_xchg(lock + (0 if LOCK else tl.program_id(0) + 1), 0)
    if not LOCK:
        tl.atomic_xchg(lock, 0)
        tl.store(out, tl.load(out) + 0.0)


def test_findings_report_no_race_under_a_lock() -> None:
    arguments = ones(100), ones(1), np.zeros(8, np.int32), 100
    assert trace(sum_under_lock)[(4,)](*arguments, LOCK=True, BLOCK=32).findings == ()
    found = trace(sum_under_lock)[(4,)](*arguments, LOCK=False, BLOCK=32).findings  # a store after the release
    assert "race" in kinds(found)


@triton.jit
def last_one_sums(x, parts, counter, out, n, BLOCK: tl.constexpr, PROGRAMS: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(parts + tl.program_id(0), tl.sum(tl.load(x + i, mask=i < n, other=0.0), axis=0))
    if tl.atomic_add(counter, 1) == PROGRAMS - 1:
        tl.store(out, tl.sum(tl.load(parts + tl.arange(0, PROGRAMS)), axis=0))


@pytest.mark.parametrize("order", ["ascending", "reversed", 5])
def test_findings_report_no_race_for_last_program_behind_a_counter(order: Any) -> None:
    out = ones(1)
    arguments = ones(100), ones(4), np.zeros(1, np.int32), out, 100
    assert trace(last_one_sums, order=order)[(4,)](*arguments, BLOCK=32, PROGRAMS=4).findings == ()
    assert out[0] == 100


@triton.jit
def halves_collide(out, BLOCK: tl.constexpr, DIFFER: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i // 2, (i if DIFFER else i // 2).to(tl.float32), mask=i < 10)


def test_finding_conflicting_store() -> None:
    (found,) = trace(halves_collide)[(1,)](ones(5), BLOCK=16, DIFFER=True).findings
    assert (found.kind, found.severity, found.element, found.count) == ("conflicting_store", "error", 0, 5)
    assert trace(halves_collide)[(1,)](ones(5), BLOCK=16, DIFFER=False).findings == ()


@triton.jit
def stores_twice(out, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, 0.0)
    tl.store(out + i, 1.0)


def test_finding_repeated_store() -> None:
    (found,) = trace(stores_twice)[(2,)](ones(32), BLOCK=16).findings
    assert (found.kind, found.severity, found.count) == ("repeated_store", "performance", 32)


@triton.jit
def reads_back(x, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(x + i, tl.load(x + i) + 1.0)
    tl.atomic_add(x + i, tl.load(x + i))


def test_findings_ignore_loads_repeated_after_a_store() -> None:
    assert trace(reads_back)[(1,)](ones(16), BLOCK=16).findings == ()


@triton.jit
def half_of_it(out, BLOCK: tl.constexpr):
    tl.store(out + 2 * tl.arange(0, BLOCK), 1.0)


def test_finding_unwritten_elements() -> None:
    traced = trace(half_of_it)[(1,)](ones(32), BLOCK=16)
    (found,) = traced.findings
    assert (found.kind, found.severity, found.element, found.count) == ("unwritten", "information", 1, 16)
    expect_no_findings(traced, performance=True)
    assert trace(half_of_it)[(1,)](ones(32)[::2], BLOCK=16).findings == ()  # a view without the elements between


@triton.jit
def nowhere(x, at):
    tl.store(x + at, tl.load(x - at))


def test_finding_address_of_no_argument() -> None:
    found = trace(nowhere)[(1,)](ones(4), 1 << 45).findings
    assert [one.kind for one in found if one.severity == "error"] == ["out_of_bounds"] * 2
    assert "belongs to no argument" in found[0].message
    found = trace(nowhere)[(1,)](ones(4), 7).findings
    assert {(one.array, one.element) for one in found} == {("x", 7), ("x", -7)}


def test_findings_are_empty_for_correct_kernels() -> None:
    x, out = ones(33, 50), ones(33, 50)
    assert trace(kernels.softmax)[(33,)](x, x, 50, 50, 50, BLOCK=64).findings == ()  # in place
    assert trace(kernels.bias_gelu)[(3, 4)](x, ones(50), out, 33, 50, BM=16, BN=16).findings == ()


def test_a_notebook_shows_findings_as_sentences() -> None:
    found = AccessFinding("out_of_bounds", "error", "reads x[6]; x has 6 elements", None, "")
    assert pretty((found,)) == "(out of bounds: reads x[6]; x has 6 elements,)"
