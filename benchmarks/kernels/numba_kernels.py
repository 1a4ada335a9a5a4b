"""Four kernels in numba, timed: on its CUDA simulator, or as loops over prange on the CPU.

    NUMBA_ENABLE_CUDASIM=1 python numba_kernels.py '[["saxpy", 16384, 20], ...]'

Without the variable the loops run. Prints for each row (kernel, n, calls) the processor seconds of a call, over all
threads, and the best seconds by the wall clock, as JSON. The first call, which compiles, is not timed; its result is
compared with numpy's.
"""

import json
import os
import sys
import time

import numpy as np
from numba import cuda, float32, njit, prange

TILE, BLOCK = 16, 128
SIMULATED = os.environ.get("NUMBA_ENABLE_CUDASIM") == "1"


@cuda.jit
def saxpy_threads(a, x, y, n):
    i = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    if i < n:
        y[i] = a * x[i] + y[i]


@cuda.jit
def naive_threads(a, b, c, n):
    row = cuda.blockIdx.y * cuda.blockDim.y + cuda.threadIdx.y
    column = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    if row < n and column < n:
        total = float32(0)
        for k in range(n):
            total += a[row, k] * b[k, column]
        c[row, column] = total


@cuda.jit
def tiled_threads(a, b, c, n):
    tile_a = cuda.shared.array((TILE, TILE), float32)
    tile_b = cuda.shared.array((TILE, TILE), float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    row, column = cuda.blockIdx.y * TILE + y, cuda.blockIdx.x * TILE + x
    total = float32(0)
    for k in range(0, n, TILE):
        tile_a[y, x] = a[row, k + x]
        tile_b[y, x] = b[k + y, column]
        cuda.syncthreads()
        for i in range(TILE):
            total += tile_a[y, i] * tile_b[i, x]
        cuda.syncthreads()
    c[row, column] = total


@cuda.jit
def sums_threads(x, sums):
    part = cuda.shared.array(BLOCK, float32)
    t = cuda.threadIdx.x
    part[t] = x[cuda.blockIdx.x * BLOCK + t]
    cuda.syncthreads()
    half = BLOCK // 2
    while half > 0:
        if t < half:
            part[t] += part[t + half]
        cuda.syncthreads()
        half //= 2
    if t == 0:
        sums[cuda.blockIdx.x] = part[0]


@njit(parallel=True)
def saxpy_loop(a, x, y, n):
    for i in prange(n):
        y[i] = a * x[i] + y[i]


@njit(parallel=True)
def naive_loop(a, b, c, n):
    for row in prange(n):
        for column in range(n):
            total = float32(0)
            for k in range(n):
                total += a[row, k] * b[k, column]
            c[row, column] = total


@njit(parallel=True)
def tiled_loop(a, b, c, n):
    for tile in prange((n // TILE) * (n // TILE)):
        row, column = tile // (n // TILE) * TILE, tile % (n // TILE) * TILE
        total = np.zeros((TILE, TILE), np.float32)
        for k in range(0, n, TILE):
            for y in range(TILE):
                for i in range(TILE):
                    for x in range(TILE):
                        total[y, x] += a[row + y, k + i] * b[k + i, column + x]
        c[row : row + TILE, column : column + TILE] = total


@njit(parallel=True)
def sums_loop(x, sums):
    for block in prange(sums.size):
        total = float32(0)
        for i in range(BLOCK):
            total += x[block * BLOCK + i]
        sums[block] = total


def case(name, n):
    """Return a call, and the pair (computed, expected) after one call, for n elements or n x n matrices."""
    rng = np.random.default_rng(0)
    if name == "saxpy":
        x, y = (rng.standard_normal(n, dtype=np.float32) for _ in range(2))
        expected = np.float32(2) * x + y
        call = saxpy_threads[-(-n // BLOCK), BLOCK] if SIMULATED else saxpy_loop
        return lambda: call(np.float32(2), x, y, n), y, expected
    if name == "sums":
        x = rng.standard_normal(n, dtype=np.float32)
        sums = np.zeros(n // BLOCK, np.float32)
        call = sums_threads[n // BLOCK, BLOCK] if SIMULATED else sums_loop
        return lambda: call(x, sums), sums, x.reshape(-1, BLOCK).sum(1)
    a, b = (rng.standard_normal((n, n), dtype=np.float32) for _ in range(2))
    c = np.zeros((n, n), np.float32)
    grid = (n // TILE, n // TILE), (TILE, TILE)
    threads, loop = (naive_threads, naive_loop) if name == "naive" else (tiled_threads, tiled_loop)
    call = threads[grid] if SIMULATED else loop
    return lambda: call(a, b, c, n), c, a @ b


found = []
for name, n, repeats in json.loads(sys.argv[1]):
    call, computed, expected = case(name, n)
    call()
    np.testing.assert_allclose(computed, expected, rtol=2e-3, atol=2e-3)
    times, before = [], time.process_time()
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    found.append({"processor": (time.process_time() - before) / repeats, "wall": min(times)})
print(json.dumps(found))
