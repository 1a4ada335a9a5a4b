"""Atomics: every operation against Python, under contention, and as one access."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from mlsys_labkit import cuda

TYPES = {"int": np.int32, "unsigned": np.uint32, "long long": np.int64, "unsigned long long": np.uint64,
         "float": np.float32, "double": np.float64}  # fmt: skip
INTEGERS = ("int", "unsigned", "unsigned long long")
ORDERED = (*INTEGERS, "long long")
OPERATIONS = {
    "Add": ((*INTEGERS, "float", "double"), lambda old, value: old + value),
    "Sub": (("int", "unsigned"), lambda old, value: old - value),
    "Exch": ((*INTEGERS, "float"), lambda old, value: value),
    "Min": (ORDERED, min),
    "Max": (ORDERED, max),
    "And": (INTEGERS, lambda old, value: old & value),
    "Or": (INTEGERS, lambda old, value: old | value),
    "Xor": (INTEGERS, lambda old, value: old ^ value),
    "Inc": (("unsigned",), lambda old, value: 0 if old >= value else old + 1),
    "Dec": (("unsigned",), lambda old, value: value if old == 0 or old > value else old - 1),
}
CASES = [(name, kind) for name, (kinds, _) in OPERATIONS.items() for kind in kinds]


@pytest.mark.parametrize("suffix", ["", "_block", "_system"])
def test_one_thread_at_a_time(suffix):
    """All operations and types in one kernel, thread after thread: old values and new ones."""
    pairs = [(0, 5), (7, 5), (5, 5), (9, 0), (3, 250)]
    calls, oracle = [], []
    for name, kind in CASES:
        for old, value in pairs:
            place = len(calls)
            calls.append(f"{{ {kind} cell = {old}; old[{place}] = atomic{name}{suffix}(&cell, ({kind}){value});"
                         f" fresh[{place}] = cell; }}")  # fmt: skip
            oracle.append((old, OPERATIONS[name][1](old, value) % (2**32 if kind == "unsigned" else 2**60)))
    kernel = cuda.compile(f"__global__ void f(double* old, double* fresh) {{ {' '.join(calls)} }}", backend="simulator")
    old, fresh = np.zeros(len(calls)), np.zeros(len(calls))
    kernel[1, 1](old, fresh)
    expected_old, expected = zip(*oracle, strict=True)
    assert old.tolist() == list(expected_old)
    assert fresh.tolist() == [e - 2**60 if e > 2**59 else e for e in expected]


@pytest.mark.parametrize("kind", ["int", "unsigned", "unsigned long long", "float", "double"])
def test_sums_under_contention(kind):
    kernel = cuda.compile(
        f"__global__ void f({kind}* sum) {{ __shared__ {kind} own; if (threadIdx.x == 0) own = 0; __syncthreads();"
        " atomicAdd(&own, 3); __syncthreads(); if (threadIdx.x == 0) atomicAdd(sum, own); }",
        backend="simulator",
    )
    total = np.zeros(1, TYPES[kind])
    kernel[300, 96](total)
    assert total[0] == 300 * 96 * 3
    total[0] = 0
    assert kernel.check[20, 96](total) == []


@pytest.mark.parametrize(
    ("header", "kind", "make", "dtype"),
    [
        ("cuda_fp16.h", "half", "__float2half(1.0f)", np.float16),
        ("cuda_fp16.h", "half2", "__float2half2_rn(1.0f)", np.float16),
        ("cuda_bf16.h", "nv_bfloat16", "__float2bfloat16(1.0f)", ml_dtypes.bfloat16),
        ("cuda_bf16.h", "nv_bfloat162", "__float2bfloat162_rn(1.0f)", ml_dtypes.bfloat16),
        ("vector_types.h", "float2", "make_float2(1, 1)", np.float32),
        ("vector_types.h", "float4", "make_float4(1, 1, 1, 1)", np.float32),
    ],
)
def test_numbers_that_cpus_have_no_atomics_for(header, kind, make, dtype):
    kernel = cuda.compile(
        f"#include <{header}>\n__global__ void f(unsigned char* sum) {{ atomicAdd(({kind}*)sum, {make}); }}",
        backend="simulator",
    )
    sums = np.zeros(16, np.uint8)
    kernel[4, 50](sums)
    values = sums.view(dtype).astype(np.float64)
    members = {"half": 1, "half2": 2, "nv_bfloat16": 1, "nv_bfloat162": 2, "float2": 2, "float4": 4}[kind]
    assert values.tolist() == [200.0] * members + [0.0] * (len(values) - members)


@pytest.mark.parametrize("kind", ["int", "unsigned", "unsigned long long", "unsigned short"])
def test_compare_and_swap_takes_a_lock(kind):
    kernel = cuda.compile(
        f"__global__ void f({kind}* lock, int* count) {{ while (atomicCAS(lock, ({kind})0, ({kind})1) != 0) {{}}\n"
        " __threadfence(); *count += 1; __threadfence(); *lock = 0; }",
        backend="simulator",
    )
    dtype = np.uint16 if kind == "unsigned short" else TYPES[kind]
    lock, count = np.zeros(4, dtype), np.zeros(1, np.int32)
    kernel[40, 8](lock, count)
    assert (lock[0], count[0]) == (0, 320)


def test_an_atomic_is_one_access():
    kernel = cuda.compile(
        "__global__ void f(int* bins, float* sum) { atomicAdd(&bins[threadIdx.x], 1); atomicAdd(sum, 1.0f); }",
        backend="simulator",
    )
    profile = kernel.profile[1, 32](np.zeros(32, np.int32), np.zeros(1, np.float32))
    assert profile.total("global", "atomic", "requests") == 2
    assert profile.total("global", "atomic", "sectors") == 4 + 1
    assert profile.global_load_requests == profile.global_store_requests == 0
