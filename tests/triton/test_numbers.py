"""Numbers of interpreted kernels against ml_dtypes, torch, Python's own integers and published vectors."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from hypothesis import given, settings
from hypothesis import strategies as st

import mlsys_labkit.triton_trace  # noqa: F401  (so that kernels run here)
from mlsys_labkit.triton_trace.errors import KernelError, TritonTraceError

BF16_CODES = np.arange(1 << 16, dtype=np.uint16)
FP8_CODES = np.arange(256, dtype=np.uint8)
TORCH_FP8 = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}
ORACLE_FP8 = {"e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2}


def same(ours: Any, expected: Any) -> bool:
    """Bit for bit, any NaN for any NaN."""
    a, b = np.asarray(ours), np.asarray(expected)
    nan = np.isnan(a.astype(np.float32)) & np.isnan(b.astype(np.float32)) if a.dtype.kind in "fV" else False
    width = np.dtype(f"u{a.itemsize}")
    return a.dtype == b.dtype and a.shape == b.shape and bool(np.all((a.view(width) == b.view(width)) | nan))


def bits(tensor: torch.Tensor, dtype: Any) -> Any:
    """A torch tensor as numpy's extended type, bit for bit."""
    width = {1: torch.uint8, 2: torch.uint16}[tensor.element_size()]
    return tensor.view(width).numpy().view(dtype)


@triton.jit
def convert(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n).to(out.dtype.element_ty), mask=i < n)


def converted(x: Any, out: Any) -> Any:
    n = x.numel() if isinstance(x, torch.Tensor) else x.size
    convert[triton.cdiv(n, 4096),](x, out, n, BLOCK=4096)
    return out


def test_every_bf16_is_the_same_number_in_fp32() -> None:
    codes = torch.from_numpy(BF16_CODES.view(np.int16)).view(torch.bfloat16)
    ours = converted(codes, torch.empty(1 << 16)).numpy()
    assert same(ours, BF16_CODES.view(ml_dtypes.bfloat16).astype(np.float32))


def hard_floats() -> np.ndarray[Any, Any]:
    """Every bf16 with the bits that decide a rounding: below, at and above the half, in both directions."""
    tails = np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32)
    return ((BF16_CODES.astype(np.uint32)[:, None] << 16) | tails).reshape(-1).view(np.float32)


def test_fp32_rounds_to_the_nearest_even_bf16() -> None:
    x = hard_floats()
    ours = converted(x, torch.empty(x.size, dtype=torch.bfloat16))
    with np.errstate(all="ignore"):
        assert same(bits(ours, ml_dtypes.bfloat16), x.astype(ml_dtypes.bfloat16))


@pytest.mark.parametrize("name", ["e4m3", "e5m2"])
def test_every_fp8_is_the_same_number_in_wider_formats(name: str) -> None:
    codes = torch.from_numpy(FP8_CODES.copy()).view(TORCH_FP8[name])
    numbers = FP8_CODES.view(ORACLE_FP8[name]).astype(np.float32)
    assert same(converted(codes, torch.empty(256)).numpy(), numbers)
    assert same(converted(codes, torch.empty(256, dtype=torch.float16)).numpy(), numbers.astype(np.float16))
    ours = converted(codes, torch.empty(256, dtype=torch.bfloat16))
    assert same(bits(ours, ml_dtypes.bfloat16), numbers.astype(ml_dtypes.bfloat16))


@pytest.mark.parametrize("name", ["e4m3", "e5m2"])
def test_fp32_rounds_to_the_nearest_even_fp8_and_saturates(name: str) -> None:
    """PTX's cvt.rn.satfinite: beyond the largest, and infinity, is the largest; NaN stays NaN."""
    x = hard_floats()
    largest = np.float32(ml_dtypes.finfo(ORACLE_FP8[name]).max)
    ours = converted(x, torch.empty(x.size, dtype=TORCH_FP8[name]))
    with np.errstate(all="ignore"):
        expected = np.where(np.isnan(x), x, np.clip(x, -largest, largest)).astype(ORACLE_FP8[name])
    assert same(bits(ours, ORACLE_FP8[name]), expected)


@pytest.mark.parametrize("name", ["e4m3", "e5m2"])
def test_every_fp16_rounds_once_to_fp8(name: str) -> None:
    x = BF16_CODES.view(np.float16)
    largest = np.float16(ml_dtypes.finfo(ORACLE_FP8[name]).max)
    ours = converted(x, torch.empty(x.size, dtype=TORCH_FP8[name]))
    with np.errstate(all="ignore"):
        expected = np.where(np.isnan(x), x, np.clip(x, -largest, largest)).astype(ORACLE_FP8[name])
    assert same(bits(ours, ORACLE_FP8[name]), expected)


def exactly_rounded(value: Fraction, mantissa_bits: int) -> float:
    """The nearest number of 1 + mantissa_bits bits, ties to even; for normal numbers. From the definition."""
    if not value:
        return 0.0
    magnitude = abs(value)
    exponent = math.floor(math.log2(magnitude))
    exponent += (magnitude >= Fraction(2) ** (exponent + 1)) - (magnitude < Fraction(2) ** exponent)
    unit = Fraction(2) ** (exponent - mantissa_bits)
    return float(round(value / unit) * unit)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=64, max_size=64))
def test_large_integers_round_once_to_bf16(numbers: list[int]) -> None:
    hard = [(1 << 62) + (1 << 54) + 1, (1 << 62) + (1 << 54), (1 << 62) + (1 << 54) - 1]
    x = np.array(hard + numbers, np.int64)
    ours = converted(x, torch.empty(x.size, dtype=torch.bfloat16)).float().tolist()
    assert ours == [exactly_rounded(Fraction(int(one)), 7) for one in x]


def test_doubles_round_once_to_bf16() -> None:
    """1 + 2**-8 + 2**-40 is above the tie; through fp32 it would fall on it, and down."""
    x = np.array([1 + 2**-8 + 2**-40, 1 + 2**-8, 1 + 3 * 2**-8 - 2**-40, -(1 + 2**-8 + 2**-40)])
    ours = converted(x, torch.empty(4, dtype=torch.bfloat16)).float().tolist()
    assert ours == [exactly_rounded(Fraction(one), 7) for one in x.tolist()]


@triton.jit
def toward_zero(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i).to(out.dtype.element_ty, fp_downcast_rounding="rtz"))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_rounding_toward_zero(dtype: torch.dtype) -> None:
    x = np.random.default_rng(0).standard_normal(1024).astype(np.float32) * np.float32(100)
    out = torch.empty(1024, dtype=dtype)
    toward_zero[1,](x, out, BLOCK=1024)
    ours = out.double().numpy()
    size = out.abs()
    step = (torch.nextafter(size, torch.full_like(size, math.inf)) - size).double().numpy()
    assert np.all(np.abs(ours) <= np.abs(x))
    assert np.all(np.abs(x) - np.abs(ours) < step)


@pytest.mark.parametrize("out_type", [np.int8, np.uint8, np.int16, np.int32, np.uint32, np.int64, np.uint64])
def test_floats_become_integers_as_cvt_rzi_does(out_type: Any) -> None:
    """Toward zero, held at the ends of the range; NaN is 0, or the top bit in 64 bits; 8 bits go through 16."""
    x = np.array([0.0, -0.9, 0.9, 1.5, -1.5, 127.7, 1e3, -1e3, 3e9, -3e9, 1e20, -1e20, np.inf, -np.inf, 7.0, -7.0])
    for values in (x, x.astype(np.float32)):
        ours = converted(values, np.empty(x.size, out_type)).tolist()
        wide = np.dtype(out_type) if np.dtype(out_type).itemsize > 1 else np.dtype(f"{np.dtype(out_type).kind}2")
        low, high = int(np.iinfo(wide).min), int(np.iinfo(wide).max)
        held = [low if one < low else high if one > high else int(one) for one in values.tolist()]
        assert ours == np.array(held, wide).astype(out_type).tolist()
    nan = converted(np.array([np.nan], np.float32), np.empty(1, out_type)).view(np.uint8)
    assert nan.tolist() == [0] * (nan.size - 1) + [0x80 if nan.size == 8 else 0]


@triton.jit
def arithmetic(x, y, z, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    on = i < n
    a, b, c = tl.load(x + i, mask=on), tl.load(y + i, mask=on), tl.load(z + i, mask=on)
    tl.store(out + i, a + b, mask=on)
    tl.store(out + n + i, a - b, mask=on)
    tl.store(out + 2 * n + i, a * b, mask=on)
    tl.store(out + 3 * n + i, tl.maximum(a, b), mask=on)
    tl.store(out + 4 * n + i, tl.minimum(a, b), mask=on)
    tl.store(out + 5 * n + i, tl.where(a < b, a, c), mask=on)
    tl.store(out + 6 * n + i, -a, mask=on)
    tl.store(out + 7 * n + i, tl.abs(a), mask=on)
    tl.store(out + 8 * n + i, tl.fma(a, b, c), mask=on)


def any_codes(seed: int, dtype: Any, count: int = 8192) -> Any:
    return np.random.default_rng(seed).integers(0, 1 << 16, count, np.uint16).view(dtype)


def exact_fma(a: Any, b: Any, c: Any, mantissa_bits: int, least_exponent: int) -> list[float]:
    """From the definition, where the exact result is a normal number; NaN elsewhere."""
    results = []
    for x, y, z in zip(a.tolist(), b.tolist(), c.tolist(), strict=True):
        if not all(map(math.isfinite, (x, y, z))):
            results.append(math.nan)
            continue
        exact = Fraction(x) * Fraction(y) + Fraction(z)
        normal = Fraction(2) ** least_exponent <= abs(exact) < Fraction(2) ** -(least_exponent - 1)
        results.append(exactly_rounded(exact, mantissa_bits) if normal else math.nan)
    return results


@pytest.mark.parametrize("name", ["bf16", "fp16"])
def test_arithmetic_of_sixteen_bits_rounds_once(name: str) -> None:
    """Oracle: numpy's and ml_dtypes' own operators, and exact fractions for the fused multiply-add."""
    dtype, torch_type = {"bf16": (ml_dtypes.bfloat16, torch.bfloat16), "fp16": (np.float16, torch.float16)}[name]
    a, b, c = any_codes(1, dtype), any_codes(2, dtype), any_codes(3, dtype)
    n = a.size
    tensors = [torch.from_numpy(one.view(np.int16).copy()).view(torch_type) for one in (a, b, c)]
    out = torch.empty(9 * n, dtype=torch_type)
    arithmetic[triton.cdiv(n, 4096),](*tensors, out, n, BLOCK=4096)
    rows = bits(out, dtype).reshape(9, n)
    with np.errstate(all="ignore"):
        wide_a, wide_b = a.astype(np.float32), b.astype(np.float32)
        assert same(rows[0], a + b)
        assert same(rows[1], a - b)
        assert same(rows[2], a * b)
        assert np.array_equal(rows[3].astype(np.float32), np.fmax(wide_a, wide_b), equal_nan=True)
        assert np.array_equal(rows[4].astype(np.float32), np.fmin(wide_a, wide_b), equal_nan=True)
        assert same(rows[5], np.where(wide_a < wide_b, a, c))
        assert same(rows[6], (a.view(np.uint16) ^ 0x8000).view(dtype))
        assert same(rows[7], (a.view(np.uint16) & 0x7FFF).view(dtype))
    fused = exact_fma(a, b, c, 7 if name == "bf16" else 10, -126 if name == "bf16" else -14)
    known = ~np.isnan(fused)
    assert known.sum() > 1000
    assert np.array_equal(rows[8].astype(np.float64)[known], np.array(fused)[known])


def test_a_fused_multiply_add_of_fp32_rounds_once() -> None:
    """(1 + 2**-23)**2 - (1 + 2**-22) is 2**-46: nothing is left of it when the product is rounded first."""
    x = np.array([1 + 2**-23] * 4, np.float32)
    z = np.array([-(1 + 2**-22)] * 4, np.float32)
    out = np.empty(36, np.float32)
    arithmetic[1,](x, x, z, out, 4, BLOCK=4)
    assert out[32:].tolist() == [2.0**-46] * 4


def test_bf16_one_and_a_half_twice_is_three() -> None:
    """Triton's own interpreter says inf."""
    x = torch.full((4,), 1.5, dtype=torch.bfloat16)
    out = torch.empty(36, dtype=torch.bfloat16)
    arithmetic[1,](x, x, x, out, 4, BLOCK=4)
    assert out[:4].tolist() == [3.0] * 4


@triton.jit
def plus_constant(x, out, C: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i) * C + tl.full((BLOCK,), 0.1, x.dtype.element_ty))


def test_constants_take_the_blocks_type() -> None:
    x = torch.arange(16, dtype=torch.bfloat16)
    out = torch.empty(16, dtype=torch.bfloat16)
    plus_constant[1,](x, out, C=0.3, BLOCK=16)
    expected = x * torch.tensor(0.3, dtype=torch.bfloat16) + torch.tensor(0.1, dtype=torch.bfloat16)
    assert torch.equal(out, expected)


@triton.jit
def plus(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i) + tl.load(x + i))


@pytest.mark.parametrize("dtype", list(TORCH_FP8.values()))
def test_arithmetic_in_fp8_is_refused_as_the_compiler_refuses_it(dtype: torch.dtype) -> None:
    x = torch.ones(4).to(dtype)
    with pytest.raises(KernelError, match=r"convert first: x\.to\(tl\.float32\)"):
        plus[1,](x, x, BLOCK=4)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fnuz, torch.float8_e5m2fnuz])
def test_formats_of_other_makers_are_refused(dtype: torch.dtype) -> None:
    with pytest.raises(TritonTraceError, match="only AMD has it"):
        plus[1,](torch.zeros(4).to(dtype), torch.zeros(4), BLOCK=4)


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
def test_reductions(dtype: torch.dtype) -> None:
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


def test_nan_is_passed_over_by_max_and_spoils_a_sum() -> None:
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
def test_scans_sorts_and_flips(dtype: Any) -> None:
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


def test_a_function_that_does_not_commute_is_combined_in_order() -> None:
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


def test_histogram_drops_what_is_outside() -> None:
    x = np.array([0, 1, 1, 7, 8, 9, -1, 3, 3, 3, 3, 3, 3, 3, 3, 3], np.int32)
    out, gathered = np.empty(8, np.int32), np.empty(16, np.int32)
    counts[1,](x, out, gathered, 9, BLOCK=16, BINS=8)
    assert out.tolist() == [1, 2, 0, 2, 0, 0, 0, 1]
    assert gathered.tolist() == x[::-1].tolist()


@triton.jit
def random_words(out, seed, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    a, b, c, d = tl.randint4x(seed, i)
    tl.store(out + i, a)
    tl.store(out + BLOCK + i, b)
    tl.store(out + 2 * BLOCK + i, c)
    tl.store(out + 3 * BLOCK + i, d)


def philox(counter: int, seed: int) -> list[int]:
    """Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", 2011: Philox 4x32-10, from the paper."""
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
