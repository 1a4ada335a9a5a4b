"""Six correct kernels, as a course would write them, whose counts follow from theory."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    a = tl.load(x + i, mask=mask)
    b = tl.load(y + i, mask=mask)
    tl.store(out + i, a + b, mask=mask)


@triton.jit
def softmax(x, out, columns, x_stride, out_stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    j = tl.arange(0, BLOCK)
    mask = j < columns
    values = tl.load(x + row * x_stride + j, mask=mask, other=-float("inf"))
    powers = tl.exp(values - tl.max(values, axis=0))
    tl.store(out + row * out_stride + j, powers / tl.sum(powers, axis=0), mask=mask)


@triton.jit
def _tile(a, b, c, M, N, K, row, column, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    i = row * BM + tl.arange(0, BM)
    j = column * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        left = tl.load(a + i[:, None] * K + k[None, :], mask=(i[:, None] < M) & (k[None, :] < K), other=0.0)
        right = tl.load(b + k[:, None] * N + j[None, :], mask=(k[:, None] < K) & (j[None, :] < N), other=0.0)
        total = tl.dot(left, right, total)
    tl.store(c + i[:, None] * N + j[None, :], total, mask=(i[:, None] < M) & (j[None, :] < N))


@triton.jit
def matmul(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    columns = tl.cdiv(N, BN)
    program = tl.program_id(0)
    _tile(a, b, c, M, N, K, program // columns, program % columns, BM, BN, BK)


@triton.jit
def grouped_matmul(a, b, c, M, N, K, GROUP: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.cdiv(M, BM)
    columns = tl.cdiv(N, BN)
    program = tl.program_id(0)
    first = program // (GROUP * columns) * GROUP
    size = min(rows - first, GROUP)
    within = program % (GROUP * columns)
    _tile(a, b, c, M, N, K, first + within % size, within // size, BM, BN, BK)


@triton.jit
def bias_gelu(x, bias, out, rows, columns, BM: tl.constexpr, BN: tl.constexpr):
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    j = tl.program_id(1) * BN + tl.arange(0, BN)
    mask = (i[:, None] < rows) & (j[None, :] < columns)
    at = i[:, None] * columns + j[None, :]
    z = tl.load(x + at, mask=mask) + tl.load(bias + j, mask=j < columns)[None, :]
    tl.store(out + at, 0.5 * z * (1.0 + tl.erf(z * 0.7071067811865476)), mask=mask)


@triton.jit
def histogram(x, counts, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    tl.atomic_add(counts + tl.load(x + i, mask=mask, other=0), 1, mask=mask)
