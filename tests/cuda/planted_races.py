"""Kernels with one planted bug each, by name."""

from __future__ import annotations

import numpy as np

from tests.cuda.race_case import REVERSE, Case, F, floats, ints

PLANTED = {
    "no barrier between load and use, other warps": Case(
        REVERSE % {"threads": 64, "barrier": ""}, 64, lambda: (floats(64),),
        kind="shared_race", lines=("s[threadIdx.x] = a", "a[threadIdx.x] = s"),
    ),
    "no barrier between load and use, one warp": Case(
        REVERSE % {"threads": 32, "barrier": ""}, 32, lambda: (floats(32),),
        kind="shared_race", lines=("s[threadIdx.x] = a", "a[threadIdx.x] = s"),
    ),
    "a warp barrier where a block barrier is needed": Case(
        REVERSE % {"threads": 64, "barrier": "__syncwarp();"}, 64, lambda: (floats(64),),
        kind="shared_race", lines=("s[threadIdx.x] = a", "a[threadIdx.x] = s"),
    ),
    "a shuffle orders no memory": Case(
        REVERSE % {"threads": 32, "barrier": "__shfl_sync(0xffffffffu, 1, 0);"}, 32, lambda: (floats(32),),
        kind="shared_race", lines=("s[threadIdx.x] = a", "a[threadIdx.x] = s"),
    ),
    "a warp barrier over the wrong half": Case(
        REVERSE % {"threads": 32, "barrier": "__syncwarp(threadIdx.x < 16 ? 0xffffu : 0xffff0000u);"},
        32, lambda: (floats(32),), kind="shared_race", lines=("s[threadIdx.x] = a", "a[threadIdx.x] = s"),
    ),
    "no barrier before the tile is loaded again": Case(
        """
__global__ void f(const float* a, float* out) {
    __shared__ float s[64];
    float sum = 0;
    for (int t = 0; t < 4; ++t) {
        s[threadIdx.x] = a[t * 64 + threadIdx.x];
        __syncthreads();
        sum += s[63 - threadIdx.x];
    }
    out[threadIdx.x] = sum;
}
""", 64, lambda: (floats(256), floats(64)), kind="shared_race", lines=("s[threadIdx.x] = a", "sum += s"),
    ),
    "warp-synchronous reduction": Case(
        """
__global__ void f(const float* a, float* out) {
    __shared__ volatile float s[64];
    int t = threadIdx.x;
    s[t] = a[t];
    __syncthreads();
    if (t < 32) {
        s[t] += s[t + 32];
        s[t] += s[t + 16];
        s[t] += s[t + 8];
        s[t] += s[t + 4];
        s[t] += s[t + 2];
        s[t] += s[t + 1];
    }
    if (t == 0) out[0] = s[0];
}
""", 64, lambda: (floats(64), floats(1)), kind="shared_race", lines=("s[t + 16]", "s[t + 8]"),
    ),
    "different values from one instruction": Case(
        """
__global__ void f(int* out) {
    __shared__ int s;
    s = threadIdx.x;
    __syncthreads();
    out[threadIdx.x] = s;
}
""", 32, lambda: (ints(32),), kind="shared_race", lines=("s = threadIdx.x", "s = threadIdx.x"),
    ),
    "bytes that overlap a word": Case(
        """
__global__ void f(int* out) {
    __shared__ int s[32];
    s[threadIdx.x] = 0;
    reinterpret_cast<signed char*>(s)[(4 * threadIdx.x + 7) % 128] = 1;
    __syncthreads();
    out[threadIdx.x] = s[threadIdx.x];
}
""", 32, lambda: (ints(32),), kind="shared_race", lines=("s[threadIdx.x] = 0", "reinterpret_cast"),
    ),
    "a counter without an atomic": Case(
        """
__global__ void f(const unsigned char* data, int* bins, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        bins[data[i]]++;
}
""", 64, lambda: (np.zeros(256, np.uint8), ints(256), 256), grid=4, kind="global_race", lines=("bins[data[i]]++",) * 2,
    ),
    "a counter without an atomic, one warp": Case(
        """
__global__ void f(int* count) {
    count[0] += threadIdx.x;
}
""", 32, lambda: (ints(1),), kind="global_race", lines=("count[0] +=",) * 2,
    ),
    "blocks exchange halves without a second launch": Case(
        """
__global__ void f(float* a, float* b) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    a[i] = i;
    __syncthreads();
    b[i] = a[127 - i];
}
""", 64, lambda: (floats(128), floats(128)), grid=2, kind="global_race", lines=("a[i] = i", "b[i] = a"),
    ),
    "threads of a block exchange through global memory": Case(
        """
__global__ void f(float* a, float* b) {
    a[threadIdx.x] = threadIdx.x;
    b[threadIdx.x] = a[63 - threadIdx.x];
}
""", 64, lambda: (floats(64), floats(64)), kind="global_race", lines=("a[threadIdx.x] =", "b[threadIdx.x] ="),
    ),
    "lanes of a warp exchange through global memory": Case(
        """
__global__ void f(float* a, float* b) {
    a[threadIdx.x] = threadIdx.x;
    b[threadIdx.x] = a[31 - threadIdx.x];
}
""", 32, lambda: (floats(32), floats(32)), kind="global_race", lines=("a[threadIdx.x] =", "b[threadIdx.x] ="),
    ),
    "in place": Case(
        """
__global__ void f(float* a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i > 0 && i < n - 1) {
        float mean = (a[i - 1] + a[i + 1]) / 2;
        a[i] = mean;
    }
}
""", 64, lambda: (floats(128), 128), grid=2, kind="global_race", lines=("a[i - 1]", "a[i] = mean"),
    ),
    "a device variable": Case(
        """
__device__ int total;
__global__ void f(const int* a) {
    total += a[threadIdx.x];
}
""", 64, lambda: (ints(64) + 1,), kind="global_race", lines=("total +=",) * 2,
    ),
    "a plain read of a counter that others add to": Case(
        """
__global__ void f(int* count, int* out) {
    int before = count[0];
    atomicAdd(count, 1);
    out[threadIdx.x] = before;
}
""", 32, lambda: (ints(1), ints(32)), kind="global_race", lines=("before = count", "atomicAdd"),
    ),
    "a counter that is read before all have added": Case(
        """
__global__ void f(int* count, int* out) {
    atomicAdd(count, 1);
    if (threadIdx.x == 31)
        out[0] = count[0];
}
""", 32, lambda: (ints(1), ints(1)), kind="global_race", lines=("atomicAdd", "out[0] = count[0]"),
    ),
    "a counter that one thread clears while others add": Case(
        """
__global__ void f(int* out) {
    __shared__ int count;
    if (threadIdx.x == 0)
        count = 0;
    atomicAdd(&count, 1);
    __syncthreads();
    out[threadIdx.x] = count;
}
""", 64, lambda: (ints(64),), kind="shared_race", lines=("count = 0", "atomicAdd"),
    ),
    "the last block reads without a fence": Case(
        """
__device__ unsigned arrived;
__global__ void f(float* part, float* out) {
    __shared__ bool last;
    if (threadIdx.x == 0) {
        part[blockIdx.x] = blockIdx.x;
        last = atomicInc(&arrived, gridDim.x - 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && threadIdx.x == 0) {
        float sum = 0;
        for (int i = 0; i < gridDim.x; ++i)
            sum += part[i];
        out[0] = sum;
    }
}
""", 32, lambda: (floats(8), floats(1)), grid=8, kind="global_race", lines=("part[blockIdx.x] =", "sum += part"),
    ),
    "a handshake of blocks without fences": Case(
        """
__global__ void f(float* x, float* out, volatile int* seen) {
    if (blockIdx.x == 0) {
        out[0] = x[0];
        seen[0] = 1;
        while (seen[1] == 0) {}
        x[0] = 2;
    } else {
        while (seen[0] == 0) {}
        out[1] = x[0];
        seen[1] = 1;
    }
}
""", 1, lambda: (floats(1), floats(2), ints(2)), grid=2, kind="global_race", lines=("x[0] = 2", "out[1] = x[0]"),
    ),
    "a handshake of warps without fences": Case(
        """
__global__ void f(int* out, volatile int* seen) {
    __shared__ int s;
    if (threadIdx.x == 0)
        s = 1;
    __syncthreads();
    if (threadIdx.x == 0) {
        out[0] = s;
        seen[0] = 1;
        while (seen[1] == 0) {}
        s = 2;
    }
    if (threadIdx.x == 32) {
        while (seen[0] == 0) {}
        out[1] = s;
        seen[1] = 1;
    }
}
""", 64, lambda: (ints(2), ints(2)), kind="shared_race", lines=("s = 2", "out[1] = s"),
    ),
    "a flag that is set before what it stands for": Case(
        """
__global__ void f(float* x, float* out, int* ready) {
    if (blockIdx.x == 0) {
        out[1] = 0;
        __threadfence();
        atomicExch(ready, 1);
        x[0] = 2;
    } else {
        while (atomicAdd(ready, 0) == 0) {}
        __threadfence();
        out[0] = x[0];
    }
}
""", 1, lambda: (floats(1), floats(2), ints(1)), grid=2, kind="global_race", lines=("x[0] = 2", "out[0] = x[0]"),
    ),
    "a plain read, and a lock that guards something else": Case(
        """
__device__ int lock;
__global__ void f(int* count, int* out) {
    int before = count[0];
    while (atomicCAS(&lock, 0, 1) != 0) {}
    atomicAdd(count, 1);
    atomicExch(&lock, 0);
    out[threadIdx.x] = before;
}
""", 32, lambda: (ints(1), ints(32)), kind="global_race", lines=("before = count", "atomicAdd"),
    ),
    "all lanes read, and after a shuffle one writes": Case(
        """
__global__ void f(int* out) {
    __shared__ int s;
    if (threadIdx.x == 0)
        s = 7;
    __syncthreads();
    int seen = s;
    int sum = __shfl_sync(0xffffffffu, seen, 0);
    if (threadIdx.x == 0)
        s = sum + 1;
    out[threadIdx.x] = seen;
}
""", 32, lambda: (ints(32),), kind="shared_race", lines=("seen = s", "s = sum + 1"),
    ),
    "a missing warp barrier after very many": Case(
        """
__global__ void f(int* out) {
    __shared__ int s[32];
    for (int round = 0; round < 200; ++round)
        __syncwarp();
    s[threadIdx.x] = threadIdx.x;
    out[threadIdx.x] = s[31 - threadIdx.x];
}
""", 32, lambda: (ints(32),), kind="shared_race", lines=("s[threadIdx.x] =", "= s[31 - threadIdx.x]"),
    ),
    "a float4 that begins inside": Case(
        """
__global__ void f(float4* out) {
    extern __shared__ float4 s[];
    s[threadIdx.x] = make_float4(0, 0, 0, 0);
    out[threadIdx.x] = make_float4(1, 1, 1, 1);
}
""", 4, lambda: (np.zeros((4, 4), F),), shared=60, kind="shared_out_of_bounds", lines=("s[threadIdx.x] =", ""),
    ),
    "one element past the end": Case(
        """
__global__ void f(const float* a, float* out, int n) {
    int i = threadIdx.x;
    if (i < n)
        out[i] = a[i + 1];
}
""", 64, lambda: (floats(33), floats(33), 33), kind="out_of_bounds", lines=("out[i] = a[i + 1]", ""),
    ),
    "one element before the beginning": Case(
        """
__global__ void f(float* a) {
    int i = threadIdx.x;
    a[i - 1] = 0;
}
""", 32, lambda: (floats(32),), kind="out_of_bounds", lines=("a[i - 1] = 0", ""),
    ),
    "a byte past an odd size": Case(
        """
__global__ void f(unsigned char* a) {
    a[threadIdx.x] = 1;
}
""", 32, lambda: (np.zeros(31, np.uint8),), kind="out_of_bounds", lines=("a[threadIdx.x] = 1", ""),
    ),
    "past a shared array into its neighbour": Case(
        """
__global__ void f(float* out) {
    __shared__ float a[32], b[32];
    a[threadIdx.x] = 0;
    b[threadIdx.x] = 0;
    __syncthreads();
    a[threadIdx.x + 1] = 1;
    __syncthreads();
    out[threadIdx.x] = a[threadIdx.x] + b[threadIdx.x];
}
""", 32, lambda: (floats(32),), kind="shared_out_of_bounds", lines=("a[threadIdx.x + 1] = 1", ""),
    ),
    "past the dynamic size": Case(
        """
__global__ void f(float* out) {
    extern __shared__ float s[];
    s[threadIdx.x] = 0;
    __syncthreads();
    out[threadIdx.x] = s[threadIdx.x];
}
""", 64, lambda: (floats(64),), shared=63 * 4, kind="shared_out_of_bounds", lines=("s[threadIdx.x] = 0", ""),
        also=frozenset({"uninitialized_shared", "shared_out_of_bounds"}),
    ),
    "shared memory that nobody wrote": Case(
        """
__global__ void f(float* out) {
    __shared__ float s[64];
    if (threadIdx.x < 63)
        s[threadIdx.x] = 1;
    __syncthreads();
    out[threadIdx.x] = s[threadIdx.x];
}
""", 64, lambda: (floats(64),), kind="uninitialized_shared", lines=("out[threadIdx.x] =", ""),
    ),
    "one byte that nobody wrote": Case(
        """
__global__ void f(int* out) {
    __shared__ int s[1];
    char* byte = reinterpret_cast<char*>(s);
    if (threadIdx.x < 3)
        byte[threadIdx.x] = 1;
    __syncthreads();
    out[threadIdx.x] = s[0];
}
""", 32, lambda: (ints(32),), kind="uninitialized_shared", lines=("out[threadIdx.x] =", ""),
    ),
    "what another block left in shared memory": Case(
        """
__global__ void f(float* out) {
    __shared__ float s[32];
    if (blockIdx.x == 0)
        s[threadIdx.x] = 1;
    __syncthreads();
    out[blockIdx.x * 32 + threadIdx.x] = s[threadIdx.x];
}
""", 32, lambda: (floats(64),), grid=2, kind="uninitialized_shared", lines=("out[blockIdx.x", ""),
    ),
    "a float4 at an odd float": Case(
        """
__global__ void f(float* a) {
    float4 v = *reinterpret_cast<float4*>(a + 1);
    a[0] = v.x;
}
""", 1, lambda: (floats(8),), kind="misaligned", lines=("float4 v =", ""),
    ),
}  # fmt: skip
