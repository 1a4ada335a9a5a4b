"""Tests of reuse distances against a cache simulated line by line, and of the effect of the programs' order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

triton = pytest.importorskip("triton")

from mlsys_labkit.access import AccessTrace, cache_misses  # noqa: E402
from mlsys_labkit.triton_trace import LaunchTrace, trace  # noqa: E402
from mlsys_labkit.triton_trace.raw_accesses import trace_raw  # noqa: E402
from tests.triton import kernels  # noqa: E402
from tests.triton.test_trace import wander  # noqa: E402


def zeros(*shape: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return np.zeros(shape, np.float32)


def simulated(lines: list[int], capacity: int) -> int:
    address = np.array(lines, np.int64) * 128
    which = np.zeros(address.size, np.int64)
    return cache_misses(AccessTrace(which, address, which > 0, (1,)), line_bytes=128, lines=capacity).misses


@settings(max_examples=15)
@given(seed=st.integers(0, 2**32 - 1), n=st.integers(1, 90), at_once=st.integers(1, 4))
def test_missed_bytes_equal_a_simulated_cache_at_every_capacity(seed: int, n: int, at_once: int) -> None:
    rng = np.random.default_rng(seed)
    arguments = zeros(60), rng.integers(0, 50, n).astype(np.int32), np.zeros(5, np.float16), zeros(n), n
    grid = (-(-n // 16),)
    traced = trace(wander)[grid](*arguments, STEP=3, BLOCK=16)
    asked: dict[int, list[list[int]]] = {}
    for one in trace_raw(wander)[grid](*arguments, STEP=3, BLOCK=16):
        on = one.addresses if one.mask is None else one.addresses[one.mask]
        for array in np.unique(on >> np.uint64(40)):  # an access to two arrays is one for each
            lines = np.unique(on[on >> np.uint64(40) == array] // np.uint64(128)).tolist()
            asked.setdefault(one.program[0], []).append(lines)
    order: list[int] = []
    programs = sorted(asked)
    for wave in (programs[i : i + at_once] for i in range(0, len(programs), at_once)):
        for turn in range(max(len(asked[program]) for program in wave)):
            for program in wave:
                order += asked[program][turn] if turn < len(asked[program]) else []
    for capacity in range(1, 12):
        assert traced.l2_bytes(128 * capacity, at_once) == 128 * simulated(order, capacity)
    assert traced.reuse(at_once).asked == len(order)


def multiplied(group: int, size: int = 256) -> LaunchTrace:
    a, b, c = zeros(size, size), zeros(size, size), zeros(size, size)
    kernel, constants = (kernels.grouped_matmul, {"GROUP": group}) if group else (kernels.matmul, {})
    tiles = (size // 16) ** 2
    return trace(kernel)[(tiles,)](a, b, c, size, size, size, BM=16, BN=16, BK=64, **constants)


def test_l2_bytes_fall_with_grouped_programs() -> None:
    plain, grouped = multiplied(0), multiplied(4)
    assert (plain.work.bytes_read, plain.dot_flops) == (grouped.work.bytes_read, grouped.dot_flops)
    matrix, row = 4 * 256 * 256, 4 * 16 * 256
    # The cache holds the 4 rows of tiles of a group, two columns (the lines of one are those of its neighbour) and the
    # tiles of c; it does not hold b. Row by row b is fetched for each of 16 rows of tiles, in groups for each of 4.
    capacity = 10 * row
    assert plain.l2_bytes(capacity) == matrix + 16 * matrix + matrix
    assert grouped.l2_bytes(capacity) == matrix + 4 * matrix + matrix
    # A cache that holds everything fetches everything once; one that holds nothing keeps nothing.
    for traced in (plain, grouped):
        assert traced.l2_bytes(4 * matrix) == 3 * matrix
        assert traced.l2_bytes(0) == 128 * traced.reuse().asked


def test_l2_bytes_fall_when_programs_take_turns() -> None:
    traced = multiplied(0, 64)
    small = 4 * 128 * 16
    assert traced.l2_bytes(small, programs_at_once=4) < traced.l2_bytes(small)
