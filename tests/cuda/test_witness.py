"""Stores that the counters missed are detected by the changed memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mlsys_labkit import cuda
from mlsys_labkit.cuda.kernel.backends.module import SimulatedModule
from mlsys_labkit.cuda.kernel.gcc.unit import Unit
from mlsys_labkit.cuda.shape import LaunchShape
from mlsys_labkit.cuda.source.source import Source

HIDDEN = """
__attribute__((no_sanitize("thread"), noinline)) void hide(float* a, float value) { *a = value; }
__global__ void f(float* a, int from) {
    if (threadIdx.x < from)
        a[threadIdx.x] = 1.0f;
    else
        hide(&a[threadIdx.x], 2.0f);
}
"""
# In a warp with column 0, one lane stores before the next one reads past the last row.
FAULTY = """
__global__ void f(const float* in, float* out, int rows, int columns) {
    int c = blockIdx.x * blockDim.x + threadIdx.x;
    int i = (blockIdx.y * blockDim.y + threadIdx.y) * columns + c;
    if (c == 0)
        out[i] = in[i];
    else
        out[i] = in[i] + in[i + columns];
}
"""
OPEN = """
#include <cuda_fp16.h>
__device__ float total;
__global__ void f(float* a, int* bins, __half* h, float4* v) {
    __shared__ float s[64];
    int i = threadIdx.x;
    s[i] = a[i];
    __syncthreads();
    a[i] = s[63 - i] + 1.0f;
    atomicAdd(&bins[i % 4], 1);
    atomicMax(&bins[4], i);
    h[i] = __float2half(i);
    v[i] = make_float4(i, i, i, i);
    memset(&bins[8 + i], 0x11, 4);
    memcpy(&bins[128 + i], &bins[8 + i], 4);
    if (i == 0)
        total = 3.0f;
}
"""


def launch(source: str, *values: Any) -> None:
    """Launch a source as a graded kernel, although the rules for graded kernels refuse it."""
    module = SimulatedModule(Unit(Source(source), ("f",)), ("float* a, int from",))
    shape = LaunchShape(grid=(1, 1, 1), block=(64, 1, 1), shared_bytes=0)
    module.launch(0, shape, (np.zeros(64, np.float32), 64), "profile")  # compiled as if it were not graded
    object.__setattr__(module.unit, "graded", True)
    module.launch(0, shape, values, "profile")


def test_hidden_stores_are_an_error() -> None:
    with pytest.raises(cuda.CudaKernelError, match="2 bytes of a changed, from byte 251 on") as caught:
        launch(HIDDEN, np.zeros(64, np.float32), 62)
    (finding,) = caught.value.findings
    # 2.0f differs from 0.0f in its last byte.
    assert (finding.kind, finding.array, finding.offset) == ("unrecorded_store", "a", 251)


def test_a_hidden_store_of_what_was_there_changes_nothing() -> None:
    launch(HIDDEN, np.full(64, 2, np.float32), 64)


def test_a_fault_after_a_store_is_reported_as_the_fault() -> None:
    kernel = cuda.compile(FAULTY, backend="simulator", graded=True)
    plate, out = np.ones((32, 32), np.float32), np.zeros((32, 32), np.float32)
    with pytest.raises(cuda.CudaKernelError, match=r"and in has 1024 elements") as caught:
        kernel.profile[(1, 4), (32, 8)](plate, out, 32, 32)
    assert [each.kind for each in caught.value.findings] == ["illegal_address"]


def test_every_way_to_store_is_recorded() -> None:
    kernel = cuda.compile(OPEN, backend="simulator", graded=True)
    a, bins = np.zeros(64, np.float32), np.zeros(256, np.int32)
    kernel.profile[1, 64](a, bins, np.zeros(64, np.float16), np.zeros((64, 4), np.float32))
    assert (a == 1).all()
    assert (bins[:4] == 16).all()
    assert (bins[128:192] == 0x11111111).all()
