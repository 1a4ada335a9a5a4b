"""``expect_cache_misses``, called as a test cell does; the expected counts are computed by hand."""

from __future__ import annotations

import numpy as np
import pytest

from mlsys_labkit.access import AccessTrace, trace_accesses
from mlsys_labkit.checks import CheckError, expect_cache_misses


def walk(order: str, a: np.ndarray, b: np.ndarray) -> None:
    """Copy a into b, one element at a time, with the axis named last innermost."""
    rows, columns = a.shape
    outer, inner = (rows, columns) if order == "ij" else (columns, rows)
    for first in range(outer):
        for second in range(inner):
            index = (first, second) if order == "ij" else (second, first)
            b[index] = a[index]


def traced(order: str) -> AccessTrace:
    return trace_accesses(lambda a, b: walk(order, a, b), np.ones((16, 16)), np.zeros((16, 16)))


def test_rows_cost_each_line_once() -> None:
    # 16 x 16 float64 are 2 KiB, 32 lines, an array; along rows no line is ever needed twice.
    expect_cache_misses(traced("ij"), at_least=64, at_most=64, lines=4)


def test_columns_cost_a_line_an_element_and_the_message_says_where() -> None:
    # Down columns every element is in another line, and 4 lines hold none of them until the next column.
    with pytest.raises(CheckError) as caught:
        expect_cache_misses(traced("ji"), at_most=64, lines=4, name="copy")
    text = str(caught.value)
    assert text.startswith("copy: too many cache misses")
    assert "at most 64 (4 lines of 64 B)" in text
    assert "512, 8x" in text
    assert "argument 0: 256, argument 1: 256" in text


def test_the_worst_array_is_named() -> None:
    trace = trace_accesses(lambda a, b: [(a[0], b[i]) for i in range(0, 64, 8)], np.zeros(64), np.zeros(64))
    with pytest.raises(CheckError, match="steps through argument 1"):
        expect_cache_misses(trace, at_most=2, lines=8)


def test_expect_cache_misses_catches_a_bypassed_recorder() -> None:
    silent = trace_accesses(lambda a, b: None, np.ones((16, 16)), np.zeros((16, 16)))
    with pytest.raises(CheckError, match="went past the recorder"):
        expect_cache_misses(silent, at_least=64, at_most=64, lines=4)


def test_expect_cache_misses_accepts_a_bound_of_zero() -> None:
    with pytest.raises(CheckError, match="too many"):
        expect_cache_misses(traced("ij"), at_most=0)


def test_expect_cache_misses_refuses_other_types() -> None:
    with pytest.raises(CheckError, match="not a trace of accesses"):
        expect_cache_misses(walk, at_most=1)
