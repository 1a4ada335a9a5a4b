"""Counters against theory: every number below follows from the kernel's source and the shape of its launch."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from mlsys_labkit import cuda
from mlsys_labkit.errors import LabkitError

from . import warp_oracle as oracle

N = 128
WARPS = N * N // 32  # of an N x N grid of threads

MATMUL = """
__global__ void naive(const float* A, const float* B, float* C, int n) {
    int col = blockIdx.x * blockDim.x + threadIdx.x;
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= n || col >= n) return;
    float sum = 0.0f;
    for (int k = 0; k < n; ++k)
        sum += A[row * n + k] * B[k * n + col];
    C[row * n + col] = sum;
}

__global__ void swapped(const float* A, const float* B, float* C, int n) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    int col = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= n || col >= n) return;
    float sum = 0.0f;
    for (int k = 0; k < n; ++k)
        sum += A[row * n + k] * B[k * n + col];
    C[row * n + col] = sum;
}

template <int T>
__global__ void tiled(const float* A, const float* B, float* C, int n) {
    __shared__ float As[T][T];
    __shared__ float Bs[T][T];
    int row = blockIdx.y * T + threadIdx.y;
    int col = blockIdx.x * T + threadIdx.x;
    float sum = 0.0f;
    for (int t = 0; t < n / T; ++t) {
        As[threadIdx.y][threadIdx.x] = A[row * n + t * T + threadIdx.x];
        Bs[threadIdx.y][threadIdx.x] = B[(t * T + threadIdx.y) * n + col];
        __syncthreads();
        for (int k = 0; k < T; ++k)
            sum += As[threadIdx.y][k] * Bs[k][threadIdx.x];
        __syncthreads();
    }
    C[row * n + col] = sum;
}

// 64 x 64 outputs a block of 16 x 16 threads, 4 x 4 a thread, 8 along k; As is stored with rows and columns swapped.
__global__ void registers(const float* A, const float* B, float* C, int n) {
    __shared__ float As[8][64];
    __shared__ float Bs[8][64];
    int tx = threadIdx.x, ty = threadIdx.y, tid = ty * 16 + tx;
    float sum[4][4] = {}, a[4], b[4];
    for (int t = 0; t < n; t += 8) {
        for (int i = tid; i < 512; i += 256) {
            As[i % 8][i / 8] = A[(blockIdx.y * 64 + i / 8) * n + t + i % 8];
            Bs[i / 64][i % 64] = B[(t + i / 64) * n + blockIdx.x * 64 + i % 64];
        }
        __syncthreads();
        for (int k = 0; k < 8; ++k) {
            for (int i = 0; i < 4; ++i)
                a[i] = As[k][ty * 4 + i];
            for (int j = 0; j < 4; ++j)
                b[j] = Bs[k][tx * 4 + j];
            for (int i = 0; i < 4; ++i)
                for (int j = 0; j < 4; ++j)
                    sum[i][j] += a[i] * b[j];
        }
        __syncthreads();
    }
    for (int i = 0; i < 4; ++i)
        for (int j = 0; j < 4; ++j)
            C[(blockIdx.y * 64 + ty * 4 + i) * n + blockIdx.x * 64 + tx * 4 + j] = sum[i][j];
}
"""

TRANSPOSE = """
#define TILE 32
#define ROWS 8
__global__ void naive(const float* in, float* out, int n) {
    int x = blockIdx.x * TILE + threadIdx.x, y = blockIdx.y * TILE + threadIdx.y;
    for (int j = 0; j < TILE; j += ROWS)
        out[x * n + y + j] = in[(y + j) * n + x];
}

template <int PAD>
__global__ void tiled(const float* in, float* out, int n) {
    __shared__ float tile[TILE][TILE + PAD];
    int x = blockIdx.x * TILE + threadIdx.x, y = blockIdx.y * TILE + threadIdx.y;
    for (int j = 0; j < TILE; j += ROWS)
        tile[threadIdx.y + j][threadIdx.x] = in[(y + j) * n + x];
    __syncthreads();
    x = blockIdx.y * TILE + threadIdx.x;
    y = blockIdx.x * TILE + threadIdx.y;
    for (int j = 0; j < TILE; j += ROWS)
        out[(y + j) * n + x] = tile[threadIdx.x][threadIdx.y + j];
}
"""

REDUCE = """
__global__ void modulo(const float* in, float* out) {
    extern __shared__ float s[];
    unsigned t = threadIdx.x;
    s[t] = in[blockIdx.x * blockDim.x + t];
    __syncthreads();
    for (unsigned d = 1; d < blockDim.x; d *= 2) {
        if (t % (2 * d) == 0)
            s[t] += s[t + d];
        __syncthreads();
    }
    if (t == 0) out[blockIdx.x] = s[0];
}

__global__ void strided(const float* in, float* out) {
    extern __shared__ float s[];
    unsigned t = threadIdx.x;
    s[t] = in[blockIdx.x * blockDim.x + t];
    __syncthreads();
    for (unsigned d = 1; d < blockDim.x; d *= 2) {
        unsigned i = 2 * d * t;
        if (i < blockDim.x)
            s[i] += s[i + d];
        __syncthreads();
    }
    if (t == 0) out[blockIdx.x] = s[0];
}

__global__ void sequential(const float* in, float* out) {
    extern __shared__ float s[];
    unsigned t = threadIdx.x;
    s[t] = in[blockIdx.x * blockDim.x + t];
    __syncthreads();
    for (unsigned d = blockDim.x / 2; d > 0; d /= 2) {
        if (t < d)
            s[t] += s[t + d];
        __syncthreads();
    }
    if (t == 0) out[blockIdx.x] = s[0];
}

__device__ float warp_sum(float v) {
    for (int d = 16; d > 0; d /= 2) v += __shfl_down_sync(0xffffffffu, v, d);
    return v;
}

__global__ void shuffled(const float* in, float* out, int n) {
    __shared__ float part[32];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float v = 0.0f;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        v += in[i];
    v = warp_sum(v);
    if (lane == 0)
        part[warp] = v;
    __syncthreads();
    if (warp == 0) {
        v = lane < blockDim.x / 32 ? part[lane] : 0.0f;
        v = warp_sum(v);
        if (lane == 0)
            atomicAdd(out, v);
    }
}
"""


@cache
def kernel(source: str, name: str | None = None) -> Any:
    return cuda.compile(source, name, backend="simulator")


def lines_of(source: str, text: str) -> list[int]:
    return [number for number, line in enumerate(source.splitlines(), 1) if text in line]


def line_of(source: str, text: str) -> int:
    """The number of the only line that contains the text."""
    (number,) = lines_of(source, text)
    return number


def one(profile: Any, line: int, space: str, op: str) -> Any:
    (count,) = [count for count in profile.line(line) if (count.space, count.op) == (space, op)]
    return count


def square(n: int = N) -> Any:
    return cuda.zeros((n, n), np.float32)


def profile_matmul(name: str, grid: tuple[int, int], block: tuple[int, int]) -> Any:
    return kernel(MATMUL, name).profile[grid, block](square(), square(), square(), N)


class TestMatmul:
    def test_naive_with_a_warp_along_a_row(self) -> None:
        """A[row][k] is one element for all lanes, B[k][col] 32 neighbours."""
        profile = profile_matmul("naive", (4, 16), (32, 8))
        assert profile.global_load_requests == 2 * WARPS * N
        assert profile.global_load_sectors == (1 + 4) * WARPS * N
        assert (profile.global_store_requests, profile.global_store_sectors) == (WARPS, 4 * WARPS)
        assert profile.simt_efficiency == 1

    def test_naive_with_a_warp_over_two_rows(self) -> None:
        """16 x 16 threads: two elements of A, 32 bytes apart at least; 16 neighbours of B are 64 bytes."""
        profile = profile_matmul("naive", (8, 8), (16, 16))
        assert profile.global_load_sectors == (2 + 2) * WARPS * N
        assert profile.global_store_sectors == 4 * WARPS

    def test_swapped_indices_read_columns(self) -> None:
        profile = profile_matmul("swapped", (4, 16), (32, 8))
        load = one(profile, lines_of(MATMUL, "sum += A[row * n + k]")[1], "global", "load")
        assert load.sectors == (32 + 1) * WARPS * N
        assert load.worst == 32
        assert profile.sectors_per_load_request == 16.5
        assert profile.global_store_sectors == 32 * WARPS

    @pytest.mark.parametrize("tile", [16, 32])
    def test_tiled(self, tile: int) -> None:
        """Each warp loads 128 neighbouring bytes of A and of B a tile: T=16 as two rows of 64."""
        profile = profile_matmul(f"tiled<{tile}>", (N // tile, N // tile), (tile, tile))
        tiles, blocks = N // tile, (N // tile) ** 2
        assert profile.global_load_requests == 2 * WARPS * tiles
        assert profile.global_load_sectors == 8 * WARPS * tiles
        assert profile.shared_store_requests == profile.shared_store_wavefronts == 2 * WARPS * tiles
        assert profile.shared_load_requests == profile.shared_load_wavefronts == 2 * WARPS * N
        assert profile.bank_conflicts == 0
        assert profile.barriers == 2 * tiles * blocks

    def test_register_tiled(self) -> None:
        profile = profile_matmul("registers", (2, 2), (16, 16))
        block_steps = 4 * (N // 8)
        warp_steps = 8 * block_steps
        assert profile.global_load_requests == 2 * 2 * warp_steps
        assert profile.global_load_sectors == 2 * (4 + 4) * warp_steps  # A: 4 rows of 32 bytes
        a_store = one(profile, line_of(MATMUL, "As[i % 8]"), "shared", "store")
        assert (a_store.requests, a_store.wavefronts, a_store.worst) == (2 * warp_steps, 2 * 8 * warp_steps, 8)
        b_store = one(profile, line_of(MATMUL, "Bs[i / 64]"), "shared", "store")
        assert b_store.wavefronts == b_store.requests == 2 * warp_steps
        a_load = one(profile, line_of(MATMUL, "a[i] = As"), "shared", "load")
        assert a_load.wavefronts == a_load.requests == 8 * 4 * warp_steps
        b_load = one(profile, line_of(MATMUL, "b[j] = Bs"), "shared", "load")  # lanes 16 bytes apart: 2-way
        assert (b_load.requests, b_load.wavefronts) == (8 * 4 * warp_steps, 2 * 8 * 4 * warp_steps)
        store = one(profile, line_of(MATMUL, "= sum[i][j]"), "global", "store")
        assert (store.requests, store.sectors) == (4 * 8 * 16, 4 * 8 * 16 * 16)

    @pytest.mark.parametrize(
        ("name", "grid", "block"),
        [("naive", (8, 8), (16, 16)), ("tiled<16>", (8, 8), (16, 16)), ("registers", (2, 2), (16, 16))],
    )
    def test_work(self, name: str, grid: tuple[int, int], block: tuple[int, int]) -> None:
        """2 n³ FLOPs, and each matrix touched once in distinct bytes, however it is written."""
        profile = profile_matmul(name, grid, block)
        assert profile.flops == 2 * N**3
        assert (profile.bytes_read, profile.bytes_written) == (2 * N * N * 4, N * N * 4)
        assert profile.work.flops == 2 * N**3
        assert profile.work.bytes_read == 32 * profile.global_load_sectors
        assert profile.work.bytes_written == 32 * profile.global_store_sectors

    def test_sampling_runs_some_blocks_and_says_so(self) -> None:
        profile = kernel(MATMUL, "naive").profile.sampled(4)[(4, 16), (32, 8)](square(), square(), square(), N)
        assert (profile.blocks_run, profile.blocks_total) == (4, 64)
        assert profile.global_load_sectors == 5 * N * 4 * 8  # four blocks of eight warps
        assert profile.work.flops == 2 * N**3  # scaled up, and marked as a model
        assert profile.work.how["flops"] == "model"
        assert "4 of 64 blocks" in str(profile)


class TestTranspose:
    def test_naive_writes_columns(self) -> None:
        profile = kernel(TRANSPOSE, "naive").profile[(4, 4), (32, 8)](square(), square(), N)
        assert (profile.global_load_requests, profile.global_load_sectors) == (WARPS, 4 * WARPS)
        assert (profile.global_store_requests, profile.global_store_sectors) == (WARPS, 32 * WARPS)

    @pytest.mark.parametrize(("pad", "ways"), [(0, 32), (1, 1)])
    def test_tiled_reads_columns_of_the_tile(self, pad: int, ways: int) -> None:
        profile = kernel(TRANSPOSE, f"tiled<{pad}>").profile[(4, 4), (32, 8)](square(), square(), N)
        assert profile.global_load_sectors == profile.global_store_sectors == 4 * WARPS
        assert profile.shared_store_wavefronts == WARPS
        assert profile.shared_load_wavefronts == ways * WARPS
        assert profile.worst_bank_conflict == ways
        assert profile.bank_conflicts == (ways - 1) * WARPS


class TestReduction:
    """256 threads: eight warps, eight rounds."""

    @pytest.mark.parametrize(
        ("name", "requests", "wavefronts", "worst"),
        [
            # Rounds of 1 to 16: a lane of every warp at least; then 4, 2 and 1 warps.
            ("modulo", 5 * 8 + 4 + 2 + 1, 5 * 8 + 4 + 2 + 1, 1),
            # 4, 2, 1, 1, ... warps; lanes 2, 4, 8 words apart, and from 16 on eight lanes or fewer share a bank.
            ("strided", 4 + 2 + 6, 4 * 2 + 2 * 4 + 8 + 8 + 8 + 4 + 2 + 1, 8),
            ("sequential", 4 + 2 + 6, 4 + 2 + 6, 1),
        ],
    )
    def test_rounds(self, name: str, requests: int, wavefronts: int, worst: int) -> None:
        blocks = 4
        array = cuda.zeros(blocks * 256, np.float32)
        profile = kernel(REDUCE, name).profile[blocks, 256, 1024](array, cuda.zeros(blocks, np.float32))
        text = {"modulo": "s[t] += s[t + d]", "strided": "s[i] +=", "sequential": "s[t] += s[t + d]"}[name]
        lines = lines_of(REDUCE, text)
        store = one(profile, lines[-1] if name == "sequential" else lines[0], "shared", "store")
        assert (store.requests, store.wavefronts, store.worst) == (blocks * requests, blocks * wavefronts, worst)
        assert profile.barriers == blocks * 9

    def test_shuffles(self) -> None:
        """Four elements a thread, no shared memory but 8 sums a block, one atomic a block."""
        out = cuda.zeros(1, np.float32)
        profile = kernel(REDUCE, "shuffled").profile[4, 256](cuda.zeros(4096, np.float32), out, 4096)
        assert (profile.global_load_requests, profile.global_load_sectors) == (128, 512)
        assert (profile.global_atomic_requests, profile.global_atomic_sectors) == (4, 4)
        assert profile.shared_store_requests == 4 * 8
        load = one(profile, line_of(REDUCE, "? part[lane]"), "shared", "load")
        assert (load.requests, load.lanes) == (4, 4 * 8)


HISTOGRAM = """
__global__ void direct(const unsigned char* data, unsigned* bins, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        atomicAdd(&bins[data[i]], 1u);
}

__global__ void privatised(const unsigned char* data, unsigned* bins, int n) {
    __shared__ unsigned mine[256];
    mine[threadIdx.x] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        atomicAdd(&mine[data[i]], 1u);
    __syncthreads();
    atomicAdd(&bins[threadIdx.x], mine[threadIdx.x]);
}
"""


class TestHistogram:
    data = np.random.default_rng(3).integers(0, 256, 4096).astype(np.uint8)

    def launch(self, name: str) -> Any:
        bins = np.zeros(256, np.uint32)
        profile = kernel(HISTOGRAM, name).profile[4, 256](self.data, bins, len(self.data))
        assert (bins == np.bincount(self.data, minlength=256)).all()
        return profile

    def test_global_atomics(self) -> None:
        profile = self.launch("direct")
        warps = [[4 * int(bin_) for bin_ in warp] for warp in self.data.reshape(-1, 32)]
        atomic = one(profile, line_of(HISTOGRAM, "&bins[data"), "global", "atomic")
        assert atomic.requests == len(warps)
        assert atomic.sectors == sum(oracle.sectors(warp, 4) for warp in warps)
        assert atomic.wavefronts == sum(oracle.most_on_one_address(warp) for warp in warps)
        assert profile.global_load_sectors == len(warps)  # 32 bytes a warp

    def test_shared_atomics(self) -> None:
        """Lanes with one bin take turns, lanes with bins 32 apart too."""
        profile = self.launch("privatised")
        warps = [[4 * int(bin_) for bin_ in warp] for warp in self.data.reshape(-1, 32)]
        atomic = one(profile, line_of(HISTOGRAM, "&mine[data"), "shared", "atomic")
        assert atomic.requests == len(warps)
        assert atomic.wavefronts == sum(max(oracle.passes(w, 4), oracle.most_on_one_address(w)) for w in warps)
        assert (profile.global_atomic_requests, profile.global_atomic_sectors) == (4 * 8, 4 * 8 * 4)


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


def floats(count: int) -> Any:
    return cuda.zeros(count, np.float32)


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
        """A neighbour's 128 bytes begin 4 bytes off: five sectors, but four for the warp at the array's edge."""
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
        """Distinct bytes are told apart by buffer, where one instruction touches forty."""
        arrays = [cuda.zeros(32, np.float32) for _ in range(40)]
        pointers = cuda.to_device(np.array([array.address for array in arrays], np.uint64))
        profile = kernel(SMALL, "rows").profile[1, 32](pointers.address, 40)
        assert profile.bytes_written == 40 * 128
        assert all((array.numpy() == row).all() for row, array in enumerate(arrays))

    def test_constant_memory_is_no_global_memory(self) -> None:
        """It has a cache of its own; a __device__ variable is global memory like any other."""
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


SPMV = """
__global__ void spmv(const int* ptr, const int* col, const float* val, const float* x, float* y, int n) {
    for (int r = blockIdx.x * blockDim.x + threadIdx.x; r < n; r += gridDim.x * blockDim.x) {
        float s = 0;
        int end = ptr[r + 1];
        for (int j = ptr[r]; j < end; ++j)
            s += val[j] * x[col[j]];
        y[r] = s;
    }
}
"""


def test_spmv_of_ragged_rows() -> None:
    """A warp goes on until its longest row ends; a lane whose row has ended takes no part."""
    rng = np.random.default_rng(1)
    n, threads = 256, 64
    lengths = rng.integers(0, 9, n)
    ptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    col = rng.integers(0, n, ptr[-1]).astype(np.int32)
    val, x = rng.standard_normal(ptr[-1]).astype(np.float32), rng.standard_normal(n).astype(np.float32)
    y = np.zeros(n, np.float32)
    profile = kernel(SPMV).profile[1, threads](ptr, col, val, x, y, n)
    assert np.allclose(y, [val[a:b] @ x[col[a:b]] for a, b in pairwise(ptr)], atol=1e-5)

    requests = lanes = sectors = 0
    for first in range(0, n, 32):  # grid-stride over one block: any 32 neighbouring rows are one warp's
        rows = np.arange(first, first + 32)
        for step in range(lengths[rows].max()):
            at = ptr[rows[lengths[rows] > step]] + step
            requests += 3
            lanes += 3 * len(at)
            sectors += 2 * oracle.sectors(4 * at, 4) + oracle.sectors(4 * col[at].astype(int), 4)
    inner = one(profile, line_of(SPMV, "s += val"), "global", "load")
    assert (inner.requests, inner.lanes, inner.sectors) == (requests, lanes, sectors)
    assert profile.flops == 2 * len(val)


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
