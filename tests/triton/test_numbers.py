"""Tests of formats and rounding in interpreted kernels against ml_dtypes, torch and exact fractions."""

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
from hypothesis import given, settings, strategies as st

import mlsys_labkit.triton_trace  # noqa: F401  (so that kernels run here)
from mlsys_labkit.triton_trace.errors import TritonKernelError, TritonTraceError
from tests.triton.number_helpers import bits, same

BF16_CODES = np.arange(1 << 16, dtype=np.uint16)
FP8_CODES = np.arange(256, dtype=np.uint8)
TORCH_FP8 = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}
ORACLE_FP8 = {"e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2}


@triton.jit
def convert(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n).to(out.dtype.element_ty), mask=i < n)


def converted(x: Any, out: Any) -> Any:
    n = x.numel() if isinstance(x, torch.Tensor) else x.size
    convert[triton.cdiv(n, 4096),](x, out, n, BLOCK=4096)
    return out


def test_bf16_to_fp32_is_exact() -> None:
    codes = torch.from_numpy(BF16_CODES.view(np.int16)).view(torch.bfloat16)
    ours = converted(codes, torch.empty(1 << 16)).numpy()
    assert same(ours, BF16_CODES.view(ml_dtypes.bfloat16).astype(np.float32))


def hard_floats() -> np.ndarray[Any, Any]:
    """Return every bf16 with the bits that decide a rounding: below, at and above the half, in both directions."""
    tails = np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32)
    return ((BF16_CODES.astype(np.uint32)[:, None] << 16) | tails).reshape(-1).view(np.float32)


def test_fp32_rounds_to_the_nearest_even_bf16() -> None:
    x = hard_floats()
    ours = converted(x, torch.empty(x.size, dtype=torch.bfloat16))
    with np.errstate(all="ignore"):
        assert same(bits(ours, ml_dtypes.bfloat16), x.astype(ml_dtypes.bfloat16))


@pytest.mark.parametrize("name", ["e4m3", "e5m2"])
def test_fp8_to_wider_formats_is_exact(name: str) -> None:
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
    """Return the nearest number of 1 + mantissa_bits bits, ties to even, by the definition; for normal numbers."""
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
    """Return the rounded exact result by the definition where it is a normal number, and NaN elsewhere."""
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


def test_bf16_values_add_as_numbers() -> None:
    """Triton's own interpreter returns inf here."""
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
    with pytest.raises(TritonKernelError, match=r"convert first: x\.to\(tl\.float32\)"):
        plus[1,](x, x, BLOCK=4)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fnuz, torch.float8_e5m2fnuz])
def test_fp8_formats_of_other_vendors_are_refused(dtype: torch.dtype) -> None:
    with pytest.raises(TritonTraceError, match=r"fp8e\db\d+ not supported in this architecture \(only AMD has it\)"):
        plus[1,](torch.zeros(4).to(dtype), torch.zeros(4), BLOCK=4)


@triton.jit
def product(a, b, out, PRECISION: tl.constexpr):
    i = tl.arange(0, 16)
    at = i[:, None] * 16 + i
    tl.store(out + at, tl.dot(tl.load(a + at), tl.load(b + at), input_precision=PRECISION))


@pytest.mark.parametrize("precision", ["bf16x3", "bf16x6"])
def test_products_of_fp32_by_parts_in_bf16_are_taken(precision: str) -> None:
    """Three products of bf16 keep 16 bits of each factor, six keep all 24."""
    a, b = (torch.randn(16, 16, generator=torch.Generator().manual_seed(seed)) for seed in (1, 2))
    out = torch.zeros(16, 16)
    product[1,](a, b, out, precision)
    torch.testing.assert_close(out.double(), a.double() @ b.double(), rtol=2**-14, atol=2**-14)
    with pytest.raises(TritonKernelError, match="input_precision must be one of"):
        product[1,](a, b, out, "fp8x3")


def test_fp8e4b15_is_converted_as_nvidia_converts_it() -> None:
    """The format of fp8e4m3 with a bias of 15 and no infinity, up to 1.75. Reference: triton.language.extra.cuda."""
    codes = np.array([sign + code for sign in (0, 0x80) for code in range(0x7F)], np.uint8)  # 254: no multiple of 4
    exponents, mantissas = (codes >> 3 & 15).astype(int), (codes & 7) / 8
    magnitudes = np.where(exponents > 0, (1 + mantissas) * 2.0 ** (exponents - 15), mantissas * 2.0**-14)
    values = torch.from_numpy(np.where(codes & 0x80, -magnitudes, magnitudes)).float()
    for dtype in (torch.float16, torch.float32):
        out = torch.zeros(254, dtype=dtype)
        convert[1,](triton.reinterpret(torch.from_numpy(codes), tl.float8e4b15), out, 254, BLOCK=256)
        assert torch.equal(out.float(), values)
        back = torch.zeros(256, dtype=torch.uint8)
        above = torch.cat([values.to(dtype), torch.tensor([7.0, -1e4], dtype=dtype)])
        convert[1,](above, triton.reinterpret(back, tl.float8e4b15), 256, BLOCK=256)
        assert back.tolist() == [*codes.tolist(), 0x7E, 0xFE]
    one = torch.zeros(1)
    convert[1,](triton.reinterpret(torch.full((1,), 0x78, dtype=torch.uint8), tl.float8e4b15), one, 1, BLOCK=1)
    assert one.item() == 1
