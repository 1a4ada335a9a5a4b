"""Counters of a transpose, reductions, a histogram and SpMV against theory."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from mlsys_labkit import cuda
from tests.cuda.counted_kernels import TRANSPOSE, WARPS, N, kernel, line_of, lines_of, one, square

from . import warp_oracle as oracle

pytestmark = pytest.mark.usefixtures("checked_kernels")

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
