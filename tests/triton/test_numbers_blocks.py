"""Tests of products, integers, reductions, scans and random numbers in interpreted kernels."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from mlsys_labkit.triton_trace import TritonKernelError, trace


@triton.jit
def product(a, b, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    x = tl.load(a + m[:, None] * K + k[None, :])
    y = tl.load(b + k[:, None] * N + n[None, :])
    tl.store(c + m[:, None] * N + n[None, :], tl.dot(x, y).to(c.dtype.element_ty))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2])
def test_dot_multiplies_exactly_and_sums_in_fp32(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    a = torch.randn(32, 64, generator=generator).to(dtype)
    b = torch.randn(64, 16, generator=generator).to(dtype)
    c = torch.empty(32, 16)
    product[1,](a, b, c, M=32, N=16, K=64)
    exact = a.double() @ b.double()
    assert torch.all((c.double() - exact).abs() <= 64 * 2**-24 * (a.double().abs() @ b.double().abs()))


def test_dot_of_fp16_does_not_overflow_in_its_sum() -> None:
    a = torch.full((16, 16), 200.0, dtype=torch.float16)
    c = torch.empty(16, 16)
    product[1,](a, a, c, M=16, N=16, K=16)
    assert torch.all(c == 200.0 * 200.0 * 16)


def test_dot_of_int8_is_exact() -> None:
    generator = np.random.default_rng(0)
    a, b = generator.integers(-128, 128, (16, 32), np.int8), generator.integers(-128, 128, (32, 16), np.int8)
    c = np.empty((16, 16), np.int32)
    product[1,](a, b, c, M=16, N=16, K=32)
    assert np.array_equal(c, a.astype(np.int32) @ b.astype(np.int32))


@triton.jit
def integers(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    a, b = tl.load(x + i), tl.load(y + i)
    tl.store(out + i, a // b)
    tl.store(out + n + i, a % b)
    tl.store(out + 2 * n + i, a >> (b & 7))
    tl.store(out + 3 * n + i, a << (b & 7))
    tl.store(out + 4 * n + i, a * b)
    tl.store(out + 5 * n + i, a & b)
    tl.store(out + 6 * n + i, a ^ b)
    tl.store(out + 7 * n + i, a | b)
    tl.store(out + 8 * n + i, ~a)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.int32, np.uint32, np.int64, np.uint64])
def test_integers_divide_toward_zero_shift_and_wrap_around(dtype: Any) -> None:
    """Oracle: Python's integers, of any size, and C's rule for the quotient."""
    limits = np.iinfo(dtype)
    generator = np.random.default_rng(0)
    a = generator.integers(limits.min, limits.max, 64, dtype, endpoint=True)
    b = generator.integers(max(limits.min, -100), 100, 64, dtype)
    b[b == 0] = 7
    out = np.empty((9, 64), dtype)
    integers[1,](a, b, out, 64, BLOCK=64)

    def wrapped(value: int) -> int:
        return (value - limits.min) % (1 << limits.bits) + limits.min

    pairs = [(int(x), int(y)) for x, y in zip(a, b, strict=True)]
    quotients = [abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1) for x, y in pairs]
    expected = [
        [wrapped(q) for q in quotients],
        [wrapped(x - q * y) for (x, y), q in zip(pairs, quotients, strict=True)],
        [x >> (y & 7) for x, y in pairs],
        [wrapped(x << (y & 7)) for x, y in pairs],
        [wrapped(x * y) for x, y in pairs],
        *([wrapped(f(x, y)) for x, y in pairs] for f in (int.__and__, int.__xor__, int.__or__)),
        [wrapped(~x) for x, _ in pairs],
    ]
    assert out.tolist() == expected


@triton.jit
def high_halves(x, y, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.umulhi(tl.load(x + i), tl.load(y + i)))


@pytest.mark.parametrize("dtype", [np.uint32, np.int32, np.uint64, np.int64])
def test_umulhi_is_the_upper_half_of_the_unsigned_product(dtype: Any) -> None:
    width = 8 * np.dtype(dtype).itemsize
    x, y = (np.random.default_rng(s).integers(0, 1 << width, 64, f"u{width // 8}").view(dtype) for s in (1, 2))
    out = np.empty(64, dtype)
    high_halves[1,](x, y, out, BLOCK=64)
    unsigned = np.dtype(f"u{width // 8}")
    pairs = zip(x.view(unsigned).tolist(), y.view(unsigned).tolist(), strict=True)
    assert out.view(unsigned).tolist() == [a * b >> width for a, b in pairs]


@triton.jit
def reductions(x, out, where, M: tl.constexpr, N: tl.constexpr):
    m, n = tl.arange(0, M), tl.arange(0, N)
    block = tl.load(x + m[:, None] * N + n[None, :])
    tl.store(out + m, tl.sum(block, axis=1))
    tl.store(out + M + m, tl.max(block, axis=1))
    tl.store(out + 2 * M + m, tl.min(block, axis=1))
    tl.store(where + m, tl.argmax(block, axis=1))
    tl.store(where + M + m, tl.argmin(block, axis=1))
    tl.store(out + 3 * M, tl.sum(block))


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int32, torch.int8]
)
def test_reductions_equal_numpys(dtype: torch.dtype) -> None:
    """Small whole numbers: every order of summation gives the same."""
    x = torch.randint(-4, 5, (8, 16), generator=torch.Generator().manual_seed(0)).to(dtype)
    out, where = torch.empty(3 * 8 + 1, dtype=dtype), torch.empty(16, dtype=torch.int32)
    reductions[1,](x, out, where, M=8, N=16)
    wide = x.double()
    assert torch.equal(out[:8].double(), wide.sum(1))
    assert torch.equal(out[8:16].double(), wide.amax(1))
    assert torch.equal(out[16:24].double(), wide.amin(1))
    assert out[24].item() == wide.sum().item()
    assert where[:8].tolist() == np.argmax(wide.numpy(), 1).tolist()
    assert where[8:].tolist() == np.argmin(wide.numpy(), 1).tolist()


def test_a_sum_of_halves_rounds_every_addition() -> None:
    """2048 + 1 is a tie in fp16 and falls back to 2048: a sum in fp32 would have been 2049."""
    x = torch.tensor([[2048.0, 1.0]], dtype=torch.float16)
    out, where = torch.empty(4, dtype=torch.float16), torch.empty(2, dtype=torch.int32)
    reductions[1,](x, out, where, M=1, N=2)
    assert out[0].item() == 2048.0


@triton.jit
def with_nan(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    block = tl.load(x + i)
    tl.store(out, tl.max(block, 0))
    tl.store(out + 1, tl.min(block, 0))
    tl.store(out + 2, tl.max(tl.maximum(block, 2.0), 0))
    tl.store(out + 3, tl.sum(block, 0))
    tl.store(out + 4, tl.max(tl.maximum(block, 2.0, propagate_nan=tl.PropagateNan.ALL), 0))
    tl.store(out + 5, tl.max(tl.clamp(block, 0.0, 2.5), 0))


def test_max_ignores_nan_and_sum_propagates_it() -> None:
    """max.f32 gives the other operand, as IEEE's maximumNumber; add.f32 gives NaN."""
    out = np.empty(6, np.float32)
    with_nan[1,](np.array([1.0, np.nan, 3.0, -1.0], np.float32), out, BLOCK=4)
    assert out[[0, 1, 2, 4, 5]].tolist() == [3.0, -1.0, 3.0, 3.0, 2.5]
    assert math.isnan(out[3])


@triton.jit
def scans(x, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    block = tl.load(x + i)
    tl.store(out + i, tl.cumsum(block, 0))
    tl.store(out + n + i, tl.cumsum(block, 0, reverse=True))
    tl.store(out + 2 * n + i, tl.cumprod(block, 0))
    tl.store(out + 3 * n + i, tl.sort(block))
    tl.store(out + 4 * n + i, tl.sort(block, descending=True))
    tl.store(out + 5 * n + i, tl.flip(block, 0))


@pytest.mark.parametrize("dtype", [np.int32, np.float32, np.float64, np.int64])
def test_scan_sort_and_flip_equal_numpys(dtype: Any) -> None:
    x = np.random.default_rng(0).choice([-2, -1, 1, 2], 32).astype(dtype)
    out = np.empty((6, 32), dtype)
    scans[1,](x, out, 32, BLOCK=32)
    expected = [np.cumsum(x), np.cumsum(x[::-1])[::-1], np.cumprod(x), np.sort(x), np.sort(x)[::-1], x[::-1]]
    assert np.array_equal(out, np.array(expected).astype(dtype))


@triton.jit
def keep_last(a, b):
    return b


@triton.jit
def scan_by_own_function(x, out, N: tl.constexpr):
    i = tl.arange(0, N)
    j = tl.arange(0, 4)[:, None] * N + i[None, :]
    tl.store(out + j, tl.associative_scan(tl.load(x + j), 1, keep_last))
    tl.store(out + 4 * N + tl.arange(0, 4), tl.reduce(tl.load(x + j), 1, keep_last))


def test_reduce_keeps_order_of_noncommutative_function() -> None:
    x = np.arange(32, dtype=np.int32).reshape(4, 8)
    out = np.empty(36, np.int32)
    scan_by_own_function[1,](x, out, N=8)
    assert np.array_equal(out[:32], x.reshape(-1))
    assert out[32:].tolist() == x[:, -1].tolist()


@triton.jit
def counts(x, out, gathered, n, BLOCK: tl.constexpr, BINS: tl.constexpr):
    i = tl.arange(0, BLOCK)
    block = tl.load(x + i)
    bins = tl.histogram(block, BINS, mask=i < n)
    tl.store(out + tl.arange(0, BINS), bins)
    tl.store(gathered + i, tl.gather(block, BLOCK - 1 - i, axis=0))


def test_histogram_ignores_values_that_are_masked_off() -> None:
    x = np.array([0, 1, 1, 7, 3, 3, 8, 9, -1, 3, 3, 3, 3, 3, 3, 3], np.int32)
    out, gathered = np.empty(8, np.int32), np.empty(16, np.int32)
    counts[1,](x, out, gathered, 6, BLOCK=16, BINS=8)
    assert out.tolist() == [1, 2, 0, 2, 0, 0, 0, 1]
    assert gathered.tolist() == x[::-1].tolist()


@pytest.mark.parametrize(("value", "n"), [(8, 7), (-1, 9)])
def test_histogram_of_a_value_outside_its_bins_is_an_error(value: int, n: int) -> None:
    x = np.array([0, 1, 1, 7, 3, 3, 8, 3, -1, 3, 3, 3, 3, 3, 3, 3], np.int32)
    x[x != value] = 1
    out, gathered = np.empty(8, np.int32), np.empty(16, np.int32)
    (found,) = (one for one in trace(counts)[1,](x, out, gathered, n, BLOCK=16, BINS=8).findings if one.count)
    assert (found.kind, found.severity, found.source_line) == (
        "histogram_range",
        "error",
        "bins = tl.histogram(block, BINS, mask=i < n)",
    )
    assert f"counts {value} in a tl.histogram of 8 bins, whose values are 0 to 7 (a GPU" in found.message
    with pytest.raises(TritonKernelError, match=rf"it counts {value} in a tl\.histogram"):
        counts[1,](x, out, gathered, n, BLOCK=16, BINS=8)


@triton.jit
def random_words(out, seed, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    a, b, c, d = tl.randint4x(seed, i)
    tl.store(out + i, a)
    tl.store(out + BLOCK + i, b)
    tl.store(out + 2 * BLOCK + i, c)
    tl.store(out + 3 * BLOCK + i, d)


def philox(counter: int, seed: int) -> list[int]:
    """Compute Philox 4x32-10 as in Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", 2011."""
    c, k = [counter, 0, 0, 0], [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(10):
        p, q = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(q >> 32) ^ c[1] ^ k[0], q & 0xFFFFFFFF, (p >> 32) ^ c[3] ^ k[1], p & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


@pytest.mark.parametrize("seed", [0, 1234, (1 << 40) + 7])
def test_random_numbers_are_philox(seed: int) -> None:
    assert philox(0, 0) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]  # the authors' known answer
    out = np.empty((4, 16), np.int32)
    random_words[1,](out, seed, BLOCK=16)
    assert out.view(np.uint32).T.tolist() == [philox(i, seed) for i in range(16)]


@triton.jit
def functions(x, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    block = tl.load(x + i)
    tl.store(out + i, tl.exp(block))
    tl.store(out + n + i, tl.log(block))
    tl.store(out + 2 * n + i, tl.sqrt(block))
    tl.store(out + 3 * n + i, tl.sigmoid(block))
    tl.store(out + 4 * n + i, tl.erf(block))
    tl.store(out + 5 * n + i, tl.rsqrt(block))
    tl.store(out + 6 * n + i, tl.exp2(block))
    tl.store(out + 7 * n + i, tl.log2(block))
    tl.store(out + 8 * n + i, tl.sin(block))
    tl.store(out + 9 * n + i, tl.cos(block))
    tl.store(out + 10 * n + i, tl.softmax(block, 0))
    tl.store(out + 11 * n + i, tl.floor(block))
    tl.store(out + 12 * n + i, tl.ceil(block))
    tl.store(out + 13 * n + i, 1 / block)


def test_functions_of_fp32_are_within_four_units_of_torchs_doubles() -> None:
    x = torch.linspace(0.05, 9.0, 64)
    out = torch.empty(14, 64)
    functions[1,](x, out, 64, BLOCK=64)
    d = x.double()
    expected = [d.exp(), d.log(), d.sqrt(), d.sigmoid(), d.erf(), d.rsqrt(), d.exp2(), d.log2(), d.sin(), d.cos()]
    expected += [d.softmax(0), d.floor(), d.ceil(), 1 / d]
    for row, exact in zip(out.double(), expected, strict=True):
        assert torch.all((row - exact).abs() <= 4 * 2**-24 * exact.abs().clamp(min=2**-6))
