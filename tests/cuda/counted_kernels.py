"""Kernels whose counts follow from their source, and the counts of one line of a profile."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from mlsys_labkit import cuda

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


@cache
def kernel(source: str, name: str | None = None) -> Any:
    return cuda.compile(source, name, backend="simulator")


def lines_of(source: str, text: str) -> list[int]:
    return [number for number, line in enumerate(source.splitlines(), 1) if text in line]


def line_of(source: str, text: str) -> int:
    """Return the number of the only line that contains the text."""
    (number,) = lines_of(source, text)
    return number


def one(profile: Any, line: int, space: str, op: str) -> Any:
    (count,) = [count for count in profile.line(line) if (count.space, count.op) == (space, op)]
    return count


def square(n: int = N) -> Any:
    return cuda.zeros((n, n), np.float32)


def profile_matmul(name: str, grid: tuple[int, int], block: tuple[int, int]) -> Any:
    return kernel(MATMUL, name).profile[grid, block](square(), square(), square(), N)


def floats(count: int) -> Any:
    return cuda.zeros(count, np.float32)
