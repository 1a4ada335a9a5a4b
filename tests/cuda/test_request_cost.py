"""Sectors and wavefronts of any address pattern, by kernels with addresses from arrays, against a slow oracle."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from mlsys_labkit import cuda

from . import warp_oracle as oracle

ELEMENTS = 256
SOURCE = """
#include <cuda_fp16.h>
template <class T>
__global__ void from_global(const T* a, const int* index, T* out) {
    int i = index[threadIdx.x];
    if (i >= 0)
        out[threadIdx.x] = a[i];
}

template <class T>
__global__ void to_global(T* a, const int* index, const T* value) {
    int i = index[threadIdx.x];
    T one = value[0];
    if (i >= 0)
        a[i] = one;
}

template <class T>
__global__ void from_shared(const int* index, const T* value, T* out) {
    __shared__ T s[256];
    for (int i = threadIdx.x; i < 256; i += 32)
        s[i] = value[0];
    __syncthreads();
    int i = index[threadIdx.x];
    if (i >= 0)
        out[threadIdx.x] = s[i];
}

__global__ void atomics(int* a, const int* index) {
    __shared__ int s[256];
    for (int i = threadIdx.x; i < 256; i += 32)
        s[i] = 0;
    __syncthreads();
    int i = index[threadIdx.x];
    if (i >= 0) {
        atomicAdd(&a[i], 1);
        atomicAdd(&s[i], 1);
    }
}
"""
TYPES = {"char": 1, "__half": 2, "float": 4, "double": 8, "float4": 16}

# -1: the lane does not take part. Runs and strides are frequent, because the counters have fast paths for them.
patterns = st.one_of(
    st.lists(st.integers(-1, ELEMENTS - 1), min_size=32, max_size=32),
    st.lists(st.integers(-1, 7), min_size=32, max_size=32),
    st.tuples(st.integers(0, 31), st.integers(0, 7), st.integers(1, 2**32 - 1)).map(
        lambda p: [p[0] + lane * p[1] if p[2] >> lane & 1 else -1 for lane in range(32)]
    ),
    st.tuples(st.lists(st.integers(0, ELEMENTS - 1), min_size=32, max_size=32), st.sampled_from([1, 2, 3, 4])).map(
        lambda p: [p[0][lane & ~p[1]] for lane in range(32)]  # neighbours share
    ),
).filter(lambda index: max(index) >= 0)
types = st.sampled_from(sorted(TYPES))


@cache
def kernel(name: str) -> Any:
    return cuda.compile(SOURCE, name, backend="simulator")


def raw(count: int, size: int) -> Any:
    """Return an array whose element type has ``size`` bytes: kernels with template parameters accept any such type."""
    dtype = {1: np.int8, 2: np.float16, 4: np.float32, 8: np.float64, 16: np.float32}[size]
    return cuda.zeros((count, 4) if size == 16 else count, dtype)


def active(index: list[int], size: int) -> dict[int, int]:
    return {lane: at * size for lane, at in enumerate(index) if at >= 0}


def count_of(profile: Any, space: str, op: str, line: int) -> Any:
    (count,) = [each for each in profile.line(line) if (each.space, each.op) == (space, op)]
    return count


def line_of(text: str) -> int:
    return next(number for number, line in enumerate(SOURCE.splitlines(), 1) if text in line)


@settings(max_examples=60, deadline=None)
@given(types, patterns)
def test_global_loads(name: str, index: list[int]) -> None:
    size, lanes = TYPES[name], active(index, TYPES[name])
    profile = kernel(f"from_global<{name}>").profile[1, 32](
        raw(ELEMENTS, size), np.array(index, np.int32), raw(32, size)
    )
    load = count_of(profile, "global", "load", line_of("= a[i]"))
    assert (load.requests, load.lanes) == (1, len(lanes))
    assert load.sectors == load.worst == oracle.sectors(lanes.values(), size)
    assert load.ideal_sectors == -(-oracle.distinct_bytes(lanes.values(), size) // 32)


@settings(max_examples=60, deadline=None)
@given(types, patterns)
def test_global_stores(name: str, index: list[int]) -> None:
    size, lanes = TYPES[name], active(index, TYPES[name])
    profile = kernel(f"to_global<{name}>").profile[1, 32](raw(ELEMENTS, size), np.array(index, np.int32), raw(1, size))
    store = count_of(profile, "global", "store", line_of("a[i] = one"))
    assert store.sectors == oracle.sectors(lanes.values(), size)
    assert profile.bytes_written == oracle.distinct_bytes(lanes.values(), size)


@settings(max_examples=80, deadline=None)
@given(types, patterns)
def test_shared_loads(name: str, index: list[int]) -> None:
    size, lanes = TYPES[name], active(index, TYPES[name])
    profile = kernel(f"from_shared<{name}>").profile[1, 32](np.array(index, np.int32), raw(1, size), raw(32, size))
    load = count_of(profile, "shared", "load", line_of("= s[i]"))
    assert load.wavefronts == oracle.wavefronts(lanes, size)
    assert load.worst == max(oracle.passes(group, size) for group in oracle.groups(lanes, size))
    assert load.ideal_wavefronts == len(oracle.groups(lanes, size))


WIDE_LOADS = [
    ("lanes side by side", list(range(32)), 2, 4),
    ("one address", [5] * 32, 1, 2),
    ("pairs n, n ^ 1", [lane // 2 for lane in range(32)], 1, 2),
    ("pairs n, n ^ 2", [lane // 4 * 2 + lane % 2 for lane in range(32)], 1, 2),
    ("pairs n, n ^ 4", [lane // 8 * 4 + lane % 4 for lane in range(32)], 2, 4),
    ("16 lanes on one address, 16 on another", [lane // 16 for lane in range(32)], 1, 2),
    ("one pair is broken", [lane // 2 if lane else 12 for lane in range(32)], 2, 4),
    ("every other lane", [lane // 2 if lane % 2 else -1 for lane in range(32)], 1, 2),
]


@pytest.mark.parametrize(
    ("index", "of_8", "of_16"), [row[1:] for row in WIDE_LOADS], ids=[row[0] for row in WIDE_LOADS]
)
def test_wide_loads_of_neighbours_with_one_address(index: list[int], of_8: int, of_16: int) -> None:
    """LDS.128 takes four passes, and two if lanes n and n ^ 1, or n and n ^ 2, share their addresses; LDS.64 half.

    Reference: NVIDIA developer forums, "Unexpected shared memory bank conflict" (77228), answer by NVIDIA.
    """
    for name, expected in (("float", 1), ("double", of_8), ("float4", of_16)):
        size = TYPES[name]
        profile = kernel(f"from_shared<{name}>").profile[1, 32](np.array(index, np.int32), raw(1, size), raw(32, size))
        load = count_of(profile, "shared", "load", line_of("= s[i]"))
        assert (load.wavefronts, load.worst) == (expected, 1), name


def test_wide_stores_are_not_served_in_pairs() -> None:
    source = """
__global__ void k(float4* out) {
    __shared__ float4 s[32];
    s[threadIdx.x / 2] = make_float4(1, 2, 3, threadIdx.x / 2);
    __syncthreads();
    out[threadIdx.x] = s[threadIdx.x / 2];
}"""
    profile = cuda.compile(source, backend="simulator").profile[1, 32](raw(32, 16))
    assert (profile.shared_store_wavefronts, profile.shared_load_wavefronts) == (4, 2)


@settings(max_examples=60, deadline=None)
@given(patterns)
def test_atomics(index: list[int]) -> None:
    lanes = active(index, 4)
    profile = kernel("atomics").profile[1, 32](np.zeros(ELEMENTS, np.int32), np.array(index, np.int32))
    one_address = oracle.most_on_one_address(lanes.values())
    on_global = count_of(profile, "global", "atomic", line_of("&a[i]"))
    assert (on_global.sectors, on_global.wavefronts) == (oracle.sectors(lanes.values(), 4), one_address)
    on_shared = count_of(profile, "shared", "atomic", line_of("&s[i]"))
    assert on_shared.wavefronts == max(oracle.passes(lanes.values(), 4), one_address)
