"""Counters of single access patterns and of arithmetic against theory; samples and seeds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mlsys_labkit import cuda
from mlsys_labkit.errors import LabkitError
from tests.cuda.counted_kernels import MATMUL, TRANSPOSE, N, floats, kernel, line_of, one, profile_matmul, square

pytestmark = pytest.mark.usefixtures("checked_kernels")

SMALL = """
#include <cuda_fp16.h>
struct Particle { float x, y, z, w; };

__global__ void array_of_structs(const Particle* p, float* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = p[i].x + p[i].z;
}

__global__ void struct_of_arrays(const float* x, const float* z, float* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = x[i] + z[i];
}

__global__ void copy_float4(const float4* in, float4* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = in[i];
}

__global__ void copy_half(const __half* in, __half* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = in[i];
}

__global__ void stencil(const float* a, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float left = 0.0f, right = 0.0f;
    if (i > 0)
        left = a[i - 1];
    if (i < n - 1)
        right = a[i + 1];
    out[i] = 0.5f * a[i] + 0.25f * (left + right);
}

__global__ void every_other(const float* a, float* out) {
    int i = threadIdx.x;
    float sum = 0.0f;
    for (int k = 0; k < 64; ++k)
        if ((k + i) % 2 == 0)
            sum += a[k * 32 + i];
    out[i] = sum;
}

__global__ void ragged(const float* a, float* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0.0f;
    for (int k = 0; k <= i % 8; ++k)
        sum += a[k * 64 + i];
    out[i] = sum;
}

__global__ void rows(float** row, int count) {
    for (int r = 0; r < count; ++r)
        row[r][threadIdx.x] = r;
}

__global__ void arithmetic(const float* x, const double* d, float* y, double* e) {
    int i = threadIdx.x;
    y[i] = x[i] * x[i] + 1.0f;
    e[i] = d[i] / 3.0;
}

__global__ void functions(const float* x, float* y) {
    int i = threadIdx.x;
    y[i] = fmaf(x[i], x[i], 1.0f);
    y[i + 32] = sinf(x[i]);
    y[i + 64] = sqrtf(x[i]);
}

__global__ void halves(const __half2* x, __half2* y) {
    int i = threadIdx.x;
    y[i] = __hfma2(x[i], x[i], x[i]);
}

__constant__ float weights[2] = {1, 2}, unused;
static __constant__ const int shift = 3;
__device__ float variable[32];
__global__ void constants(const float* x) {
    int i = threadIdx.x;
    variable[i] = weights[i % 2] * x[i] + *(&shift + i / 32);
}

__global__ void one_warp_of_two(float* a) {
    if (threadIdx.x < 8)
        a[threadIdx.x] = 1.0f;
}
"""


class TestAccessPatterns:
    def test_array_of_structs_wastes_three_quarters(self) -> None:
        """Lanes 16 bytes apart: 512 bytes, 16 sectors, for 128 bytes."""
        profile = kernel(SMALL, "array_of_structs").profile[4, 64](np.zeros((256, 4), np.float32), floats(256))
        assert (profile.global_load_requests, profile.sectors_per_load_request) == (2 * 8, 16)
        assert profile.total("global", "load", "ideal_sectors") == 2 * 8 * 4
        assert profile.bytes_read == 256 * 8

    def test_struct_of_arrays(self) -> None:
        profile = kernel(SMALL, "struct_of_arrays").profile[4, 64](floats(256), floats(256), floats(256))
        assert (profile.global_load_requests, profile.sectors_per_load_request) == (2 * 8, 4)

    def test_float4_is_one_request(self) -> None:
        profile = kernel(SMALL, "copy_float4").profile[4, 64](
            np.zeros((256, 4), np.float32), np.zeros((256, 4), np.float32)
        )
        assert (profile.global_load_requests, profile.sectors_per_load_request) == (8, 16)
        assert (profile.global_store_requests, profile.sectors_per_store_request) == (8, 16)
        assert {count.bytes_per_lane for count in profile.lines if count.requests} == {16}

    def test_half_is_half_the_sectors(self) -> None:
        profile = kernel(SMALL, "copy_half").profile[4, 64](np.zeros(256, np.float16), np.zeros(256, np.float16))
        assert (profile.sectors_per_load_request, profile.sectors_per_store_request) == (2, 2)

    def test_stencil_crosses_sectors(self) -> None:
        """A neighbour's 128 bytes begin 4 bytes off: five sectors, and four for the warp at the array's edge."""
        profile = kernel(SMALL, "stencil").profile[4, 256](floats(1024), floats(1024), 1024)
        for text in ("left = a[i - 1]", "right = a[i + 1]"):
            neighbour = one(profile, line_of(SMALL, text), "global", "load")
            assert (neighbour.requests, neighbour.lanes, neighbour.sectors) == (32, 1023, 31 * 5 + 4)
        assert one(profile, line_of(SMALL, "0.5f * a[i]"), "global", "load").sectors == 32 * 4

    def test_lanes_that_take_turns(self) -> None:
        """Each of 64 rounds is a request of its own, of 16 lanes 8 bytes apart."""
        profile = kernel(SMALL, "every_other").profile[1, 32](floats(64 * 32), floats(32))
        load = one(profile, line_of(SMALL, "sum += a[k * 32 + i]"), "global", "load")
        assert (load.requests, load.lanes, load.sectors) == (64, 64 * 16, 64 * 4)

    def test_ragged_loops(self) -> None:
        """Round k: the lanes whose i % 8 is k or more."""
        profile = kernel(SMALL, "ragged").profile[1, 64](floats(512), floats(64))
        load = one(profile, line_of(SMALL, "sum += a[k * 64 + i]"), "global", "load")
        assert load.requests == 2 * 8
        assert load.lanes == 2 * 4 * sum(range(1, 9))
        assert profile.simt_efficiency < 1

    def test_many_buffers_at_one_site(self) -> None:
        """Distinct bytes are counted per buffer, also where one instruction touches forty."""
        arrays = [cuda.zeros(32, np.float32) for _ in range(40)]
        pointers = cuda.to_device(np.array([array.address for array in arrays], np.uint64))
        profile = kernel(SMALL, "rows").profile[1, 32](pointers.address, 40)
        assert profile.bytes_written == 40 * 128
        assert all((array.numpy() == row).all() for row, array in enumerate(arrays))

    def test_constant_memory_is_no_global_memory(self) -> None:
        """Constant memory has a separate cache; a __device__ variable is global memory like any other."""
        profile = kernel(SMALL, "constants").profile[1, 32](floats(32))
        assert (profile.global_load_requests, profile.bytes_read) == (1, 128)
        assert (profile.global_store_requests, profile.bytes_written) == (1, 128)

    def test_half_empty_warps(self) -> None:
        profile = kernel(SMALL, "one_warp_of_two").profile[1, 64](floats(8))
        store = one(profile, line_of(SMALL, "a[threadIdx.x] = 1.0f"), "global", "store")
        assert (store.requests, store.lanes, store.sectors, profile.bytes_written) == (1, 8, 1, 32)


class TestArithmetic:
    def test_flops_by_precision(self) -> None:
        profile = kernel(SMALL, "arithmetic").profile[1, 32](
            floats(32), cuda.zeros(32, np.float64), floats(32), cuda.zeros(32, np.float64)
        )
        assert profile.instructions["float32"] == 2 * 32
        assert profile.instructions["float64"] == 32

    def test_fma_is_two_and_a_function_one(self) -> None:
        profile = kernel(SMALL, "functions").profile[1, 32](floats(32), floats(96))
        assert profile.flops == (2 + 1 + 1) * 32

    def test_arithmetic_on_halves(self) -> None:
        """Two fused multiply-adds a lane, whatever wider type the simulator does them in."""
        profile = kernel(SMALL, "halves").profile[1, 32](np.ones((32, 2), np.float16), np.ones((32, 2), np.float16))
        assert profile.flops == profile.instructions["float16"] == 4 * 32
        assert profile.work.dtype == "float16"


class TestSamples:
    def test_lanes_of_a_request(self) -> None:
        profile = kernel(TRANSPOSE, "tiled<0>").profile[(4, 4), (32, 8)](square(), square(), N)
        load = next(s for s in profile.samples if (s.space, s.op) == ("shared", "load"))
        assert load.array == "tile"
        assert load.lanes == tuple(4 * 32 * lane + load.lanes[0] for lane in range(32))
        store = next(s for s in profile.samples if (s.space, s.op) == ("global", "store"))
        assert (store.array, store.block, store.bytes_per_lane) == ("out", (0, 0, 0), 4)

    def test_inactive_lanes_are_none(self) -> None:
        profile = kernel(SMALL, "one_warp_of_two").profile[1, 64](floats(8))
        (sample,) = profile.samples
        assert sample.lanes == (*range(0, 32, 4), *[None] * 24)


def test_heat_follows_the_loop() -> None:
    profile = profile_matmul("naive", (4, 16), (32, 8))
    inner = profile.line(8)[0]
    assert inner.executed == N**3
    assert profile.line(9)[0].executed == N**2


def test_an_unknown_count_is_refused() -> None:
    with pytest.raises(LabkitError, match="no count 'sector'"):
        profile_matmul("naive", (4, 16), (32, 8)).total("global", "load", "sector")


def test_two_runs_and_two_orders_count_the_same() -> None:
    def launch(profile: Any) -> Any:
        return profile[(8, 8), (16, 16)](square(), square(), square(), N)

    profile = kernel(MATMUL, "tiled<16>").profile
    first, again, shuffled = launch(profile), launch(profile), launch(profile.seeded(5))
    assert first.lines == again.lines == shuffled.lines
    assert first.samples == again.samples


def test_a_seed_gives_one_order_whichever_os_thread_runs_a_block() -> None:
    source = """
__global__ void order(int* x, int* next) { x[64 * blockIdx.x + atomicAdd(&next[blockIdx.x], 1)] = threadIdx.x; }
"""

    def order(seed: int) -> Any:
        x = np.full((40, 64), -1, np.int32)
        cuda.compile(source).seeded(seed)[40, 64](x, np.zeros(40, np.int32))
        assert (np.sort(x) == np.arange(64)).all()
        return x

    first = order(3)
    assert all((order(3) == first).all() for _ in range(10))
    assert (order(4) != first).any()
    assert len({tuple(block) for block in first}) > 20  # blocks differ, too
