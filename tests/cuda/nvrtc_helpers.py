"""Shared helpers for NVIDIA's compiler: complaints, SASS and resources of a source."""

from __future__ import annotations

from typing import Any

import pytest

from mlsys_labkit.cuda.nvidia import nvrtc, ptxas
from mlsys_labkit.cuda.nvidia.resources import Resources, resources as read_resources

NEEDS_NVRTC = pytest.mark.skipif(
    not nvrtc.available(), reason="needs NVIDIA's run-time compiler; run: pip install 'mlsys-labkit[cuda]'"
)

TILED = """
template <int T> __global__ void matmul(const float* a, const float* b, float* c, int n) {
  __shared__ float tile_a[T][T], tile_b[T][T];
  int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * T + y, column = blockIdx.x * T + x;
  float sum = 0;
  for (int k = 0; k < n; k += T) {
    tile_a[y][x] = a[row * n + k + x];
    tile_b[y][x] = b[(k + y) * n + column];
    __syncthreads();
    for (int i = 0; i < T; ++i) sum += tile_a[y][i] * tile_b[i][x];
    __syncthreads();
  }
  c[row * n + column] = sum;
}
"""
ONE = "__global__ void one(float* x) { x[threadIdx.x] = 1; }\n"


def resources(source: str, name: str, **options: Any) -> Resources:
    return read_resources(nvrtc.compile(source, name, **options), name)


def sass(source: str, name: str) -> str:
    compiled = nvrtc.compile(source, name)
    return ptxas.disassemble(compiled.cubin, compiled.symbol)


def complaints(source: str, name: str | None = None) -> list[tuple[int, int, str]]:
    return [(one.line, one.column, one.text) for one in nvrtc.check(source, name)]
