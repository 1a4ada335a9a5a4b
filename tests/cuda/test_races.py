"""What ``check`` finds in planted bugs, under every order of threads, and that it finds nothing in correct kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import pytest

from mlsys_labkit import cuda

SEEDS = range(8)  # 0 is the natural order
MANY_SEEDS = range(100)
F = np.float32


def floats(count: int) -> Any:
    return np.ones(count, F)


def ints(count: int) -> Any:
    return np.zeros(count, np.int32)


@dataclass(frozen=True)
class Case:
    """A kernel and its launch; for a planted bug what has to be found: kind and the texts of both lines."""

    source: str
    block: int
    arguments: Callable[[], tuple[Any, ...]]
    grid: int = 1
    shared: int = 0
    kind: str = ""
    lines: tuple[str, str] = ("", "")
    also: frozenset[str] = field(default_factory=frozenset)  # kinds that may be found besides

    def find(self, seed: int = 0) -> list[Any]:
        check = compiled(self.source).check
        return (check.seeded(seed) if seed else check)[self.grid, self.block, self.shared](*self.arguments())

    def line(self, text: str) -> int:
        (number,) = [number for number, line in enumerate(self.source.splitlines(), 1) if text in line]
        return number


@cache
def compiled(source: str) -> Any:
    return cuda.compile(source, backend="simulator")


REVERSE = """
__global__ void f(float* a) {
    __shared__ float s[%(threads)d];
    s[threadIdx.x] = a[threadIdx.x];
    %(barrier)s
    a[threadIdx.x] = s[%(threads)d - 1 - threadIdx.x];
}
"""

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


@pytest.mark.parametrize("name", PLANTED)
@pytest.mark.parametrize("seed", SEEDS)
def test_planted_bugs_are_found(name: str, seed: int) -> None:
    expect_planted(PLANTED[name], seed)


@pytest.mark.soak
@pytest.mark.parametrize("name", PLANTED)
def test_planted_bugs_are_found_in_any_order(name: str) -> None:
    for seed in MANY_SEEDS:
        expect_planted(PLANTED[name], seed)


def expect_planted(case: Case, seed: int) -> None:
    found = case.find(seed)
    wanted = tuple(case.line(text) if text else 0 for text in case.lines)
    assert (case.kind, *wanted) in [(each.kind, each.line, each.other_line) for each in found]
    assert {each.kind for each in found} <= {case.kind} | case.also


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
    """Two lists of three nodes; each node is a buffer of its own."""
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


@pytest.mark.parametrize("name", CORRECT)
@pytest.mark.parametrize("seed", SEEDS)
def test_correct_kernels_are_clean(name: str, seed: int) -> None:
    assert CORRECT[name].find(seed) == []


@pytest.mark.soak
@pytest.mark.parametrize("name", CORRECT)
def test_correct_kernels_are_clean_in_any_order(name: str) -> None:
    for seed in MANY_SEEDS:
        assert CORRECT[name].find(seed) == []


def test_a_finding_says_who_where_and_what() -> None:
    case = PLANTED["no barrier between load and use, other warps"]
    (finding,) = case.find()
    assert finding.block == finding.other_block == (0, 0, 0)
    assert finding.array == "s"
    assert finding.source_line.strip() == "s[threadIdx.x] = a[threadIdx.x];"
    assert finding.count == 64  # one write and one read of each element
    assert "__syncthreads()" in finding.message


def test_of_several_readers_the_one_that_clashes_is_named() -> None:
    """Block 0 reads first, and what it reads it may overwrite: only block 1 is at odds with the write."""
    (finding,) = PLANTED["a handshake of blocks without fences"].find()
    assert {finding.block, finding.other_block} == {(0, 0, 0), (1, 0, 0)}
    assert "the blocks of a launch" in finding.message


def test_out_of_bounds_names_the_element() -> None:
    (finding,) = PLANTED["one element past the end"].find()
    assert (finding.array, finding.offset, finding.thread) == ("a", 33 * 4, (32, 0, 0))
    assert "a[33]" in finding.message
    assert "33 elements" in finding.message
