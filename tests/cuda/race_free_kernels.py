"""Correct kernels by name, in which ``check`` has to find nothing."""

from __future__ import annotations

from typing import Any

import numpy as np

from mlsys_labkit import cuda
from tests.cuda.race_case import REVERSE, Case, floats, ints

CORRECT = {
    "a block barrier": Case(REVERSE % {"threads": 64, "barrier": "__syncthreads();"}, 64, lambda: (floats(64),)),
    "a warp barrier": Case(REVERSE % {"threads": 32, "barrier": "__syncwarp();"}, 32, lambda: (floats(32),)),
    "many warp barriers": Case(
        """
__global__ void f(int* out) {
    __shared__ int s[32], first[32];
    s[threadIdx.x] = threadIdx.x;
    first[threadIdx.x] = threadIdx.x;
    for (int round = 0; round < 256; ++round) {
        __syncwarp();
        int next = s[(threadIdx.x + 1) % 32];
        __syncwarp();
        s[threadIdx.x] = next;
    }
    out[threadIdx.x] = s[threadIdx.x] + first[31 - threadIdx.x];
}
""", 32, lambda: (ints(32),),
    ),
    "warp barriers over halves": Case(
        """
__global__ void f(int* out) {
    __shared__ int s[32];
    unsigned half = threadIdx.x < 16 ? 0xffffu : 0xffff0000u;
    __syncwarp();
    s[threadIdx.x] = threadIdx.x;
    __syncwarp(half);
    int other = s[threadIdx.x ^ 15] + s[threadIdx.x / 16 * 16];
    __syncwarp(half);
    if (threadIdx.x % 16 == 0)
        for (int i = 0; i < 16; ++i)
            s[threadIdx.x + i] = 0;
    __syncwarp(half);
    out[threadIdx.x] = other + s[threadIdx.x];
}
""", 32, lambda: (ints(32),),
    ),
    "halves neighbours": Case(
        """
#include <cuda_fp16.h>
__global__ void f(__half* a) {
    __shared__ __half s[64];
    s[threadIdx.x] = a[threadIdx.x];
    __syncthreads();
    a[threadIdx.x] = s[63 - threadIdx.x];
}
""", 64, lambda: (np.ones(64, np.float16),),
    ),
    "bytes neighbours": Case(
        """
__global__ void f(signed char* a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        a[i] = a[i] + i;
}
""", 50, lambda: (np.zeros(150, np.int8), 150), grid=3,
    ),
    "bytes, then words, then bytes": Case(
        """
__global__ void f(int* out) {
    __shared__ int s[32];
    unsigned char* byte = reinterpret_cast<unsigned char*>(s);
    byte[threadIdx.x] = threadIdx.x;
    __syncthreads();
    if (threadIdx.x < 32)
        s[threadIdx.x] += 1;
    __syncthreads();
    out[threadIdx.x] = byte[127 - threadIdx.x];
}
""", 128, lambda: (ints(128),),
    ),
    "one value from all lanes": Case(
        """
__global__ void f(float* a) {
    __shared__ float s[2];
    s[threadIdx.x / 32] = threadIdx.x / 32;
    __syncthreads();
    a[threadIdx.x] = s[threadIdx.x / 32];
}
""", 64, lambda: (floats(64),),
    ),
    "a flag that many set": Case(
        """
__global__ void f(int* flag, const float* a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && a[i] > 0)
        *flag = 1;
}
""", 64, lambda: (ints(1), floats(1024), 1024), grid=16,
    ),
    "a loop around compare-and-swap": Case(
        """
__device__ void add(double* at, double value) {
    unsigned long long* bits = reinterpret_cast<unsigned long long*>(at);
    unsigned long long old = *bits, assumed;
    do {
        assumed = old;
        old = atomicCAS(bits, assumed, __double_as_longlong(value + __longlong_as_double(assumed)));
    } while (assumed != old);
}
__global__ void f(double* sum) {
    add(sum, threadIdx.x);
}
""", 64, lambda: (np.zeros(1),), grid=4,
    ),
    "a test before an atomic": Case(
        """
__global__ void f(const int* a, int* most) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (a[i] > *most)
        atomicMax(most, a[i]);
}
""", 64, lambda: (np.arange(256, dtype=np.int32), ints(1)), grid=4,
    ),
    "a lock around plain accesses": Case(
        """
__device__ int lock;
__global__ void f(int* total) {
    if (threadIdx.x == 0) {
        while (atomicCAS(&lock, 0, 1) != 0) {}
        __threadfence();
        *total += blockIdx.x;
        __threadfence();
        atomicExch(&lock, 0);
    }
}
""", 32, lambda: (ints(1),), grid=8,
    ),
    "the last block reads what all have published": Case(
        """
__device__ unsigned arrived;
__global__ void f(float* part, float* out) {
    __shared__ bool last;
    if (threadIdx.x == 0) {
        part[blockIdx.x] = blockIdx.x;
        __threadfence();
        last = atomicInc(&arrived, gridDim.x - 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && threadIdx.x == 32) {
        float sum = 0;
        for (int i = 0; i < gridDim.x; ++i)
            sum += part[i];
        out[0] = sum;
    }
}
""", 64, lambda: (floats(8), floats(1)), grid=8,
    ),
    "a chain of blocks that hand on a sum": Case(
        """
__global__ void f(int* sums, volatile int* ready) {
    if (threadIdx.x == 0) {
        int before = 0;
        if (blockIdx.x > 0) {
            while (ready[blockIdx.x - 1] == 0) {}
            __threadfence();
            before = sums[blockIdx.x - 1] + sums[0];
        }
        sums[blockIdx.x] = before + blockIdx.x;
        __threadfence();
        ready[blockIdx.x] = 1;
    }
}
""", 32, lambda: (ints(8), ints(8)), grid=8,
    ),
    "a grid barrier": Case(
        """
#include <cooperative_groups.h>
__global__ void f(float* a, float* b) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    a[i] = i;
    cooperative_groups::this_grid().sync();
    b[i] = a[127 - i];
}
""", 64, lambda: (floats(128), floats(128)), grid=2,
    ),
    "a tile of a warp": Case(
        """
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
__global__ void f(int* out) {
    __shared__ int s[64];
    auto tile = cg::tiled_partition<8>(cg::this_thread_block());
    s[threadIdx.x] = threadIdx.x;
    tile.sync();
    out[threadIdx.x] = s[threadIdx.x ^ 7];
}
""", 64, lambda: (ints(64),),
    ),
    "a list over separate buffers": Case(
        """
struct Node { long long value; Node* next; };
__global__ void f(Node** heads, long long* out) {
    long long sum = 0;
    for (Node* node = heads[threadIdx.x]; node; node = node->next)
        sum += node->value;
    out[threadIdx.x] = sum;
}
""", 2, lambda: lists(),
    ),
    "atomics on shared and on global memory": Case(
        """
__global__ void f(const unsigned char* data, int* bins) {
    __shared__ int mine[256];
    for (int i = threadIdx.x; i < 256; i += blockDim.x)
        mine[i] = 0;
    __syncthreads();
    atomicAdd(&mine[data[blockIdx.x * blockDim.x + threadIdx.x]], 1);
    __syncthreads();
    for (int i = threadIdx.x; i < 256; i += blockDim.x)
        atomicAdd(&bins[i], mine[i]);
}
""", 64, lambda: (np.arange(256, dtype=np.uint8), ints(256)), grid=4,
    ),
    "read by all blocks, written by none": Case(
        """
__constant__ float weights[3] = {0.25f, 0.5f, 0.25f};
__global__ void f(const float* a, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i > 0 && i < n - 1)
        out[i] = weights[0] * a[i - 1] + weights[1] * a[i] + weights[2] * a[i + 1];
}
""", 64, lambda: (floats(256), floats(256), 256), grid=4,
    ),
}  # fmt: skip

_alive: list[Any] = []  # buffers that only pointers in other buffers refer to


def lists() -> tuple[Any, ...]:
    """Return two lists of three nodes; each node is a buffer of its own."""
    _alive.clear()
    heads = []
    for _ in range(2):
        following = 0
        for value in (3, 2, 1):
            node = cuda.to_device(np.array([value, following], np.uint64))
            _alive.append(node)
            following = node.address
        heads.append(following)
    _alive.append(cuda.to_device(np.array(heads, np.uint64)))
    return _alive[-1].address, np.zeros(2, np.int64)
