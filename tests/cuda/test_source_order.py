"""The optimiser keeps the order of accesses: one that the source makes too early is early in check as well."""

from __future__ import annotations

import numpy as np

from mlsys_labkit import cuda

LOADS_BEFORE_THE_GUARD = """
__global__ void add(const float* a, const float* b, float* c, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = a[i] + b[i];
    if (i < n) c[i] = sum;
}
"""


def test_a_load_before_its_guard_is_out_of_bounds():
    kernel = cuda.compile(LOADS_BEFORE_THE_GUARD, backend="simulator")
    a, b, c = (np.zeros(100, np.float32) for _ in range(3))
    assert {(one.kind, one.line, one.array) for one in kernel.check[1, 128](a, b, c, 100)} == {
        ("out_of_bounds", 5, "a"),
        ("out_of_bounds", 5, "b"),
    }


def test_the_same_loads_are_clean_where_the_grid_fits():
    kernel = cuda.compile(LOADS_BEFORE_THE_GUARD, backend="simulator")
    a, b, c = (np.zeros(128, np.float32) for _ in range(3))
    assert kernel.check[1, 128](a, b, c, 128) == []
