"""tiled_matmul.cu on numba's CUDA simulator (NUMBA_ENABLE_CUDASIM=1): prints its seconds as JSON."""

import json
import sys
import time

import numpy as np
from numba import cuda, float32

n, TILE = int(sys.argv[1]), int(sys.argv[2])


@cuda.jit
def matmul(a, b, c, n):
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


rng = np.random.default_rng(0)
a, b = (rng.standard_normal((n, n), dtype=np.float32) for _ in range(2))
c = np.zeros((n, n), np.float32)
start = time.perf_counter()
matmul[(n // TILE, n // TILE), (TILE, TILE)](a, b, c, n)
took = time.perf_counter() - start
np.testing.assert_allclose(c, a @ b, rtol=1e-3, atol=1e-3)
print(json.dumps({"seconds": took}))
