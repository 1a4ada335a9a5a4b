"""Half and bfloat16: every code there and back, arithmetic that rounds once, order, held to exact numbers."""

from __future__ import annotations

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from mlsys_labkit import cuda

RNG = np.random.default_rng(16)
KINDS = {
    "half": ("cuda_fp16.h", np.dtype(np.float16)),
    "bfloat16": ("cuda_bf16.h", np.dtype(ml_dtypes.bfloat16)),
}
TYPE = {"half": "half", "bfloat16": "nv_bfloat16"}
PAIR = {"half": "half2", "bfloat16": "nv_bfloat162"}
SPECIAL = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan]


@pytest.fixture(autouse=True)
def special_values_are_wanted():
    with np.errstate(all="ignore"):
        yield


def codes(dtype: np.dtype) -> np.ndarray:
    return np.arange(2**16, dtype=np.uint16).view(dtype)


def same(got: np.ndarray, expected: np.ndarray, case: str = "") -> None:
    """Check that the bits are equal, except that any NaN equals any NaN."""
    nan = np.isnan(expected.astype(np.float32))
    np.testing.assert_array_equal(np.isnan(got.astype(np.float32)), nan, case)
    np.testing.assert_array_equal(got.view(np.uint16)[~nan], expected.view(np.uint16)[~nan], case)


def run(kind: str, text: str, *arrays: np.ndarray) -> None:
    header, _ = KINDS[kind]
    parameters = ", ".join(f"{'const ' if i + 1 < len(arrays) else ''}unsigned short* p{i}" for i in range(len(arrays)))
    source = (
        f"#include <{header}>\n#define T {TYPE[kind]}\n"
        f"__global__ void f({parameters}) {{ int i = blockIdx.x * blockDim.x + threadIdx.x; {text} }}"
    )
    bits = [array.view(np.uint16) for array in arrays]
    cuda.compile(source, backend="simulator")[len(bits[0]) // 256, 256](*bits)


@pytest.mark.parametrize("kind", KINDS)
def test_every_code_to_float_and_back(kind):
    _, dtype = KINDS[kind]
    every = codes(dtype)
    back = np.zeros_like(every)
    run(kind, "float x = ((const T*)p0)[i]; ((T*)p1)[i] = x;", every, back)
    same(back, every)
    wide = np.zeros(2**17, np.uint16)  # the floats themselves
    run(kind, "((float*)p1)[i] = ((const T*)p0)[i];", every, wide)
    np.testing.assert_array_equal(wide.view(np.float32), every.astype(np.float32))


@pytest.mark.parametrize("kind", KINDS)
def test_one_nan(kind):
    """Every NaN result has the one NaN code that a GPU returns."""
    _, dtype = KINDS[kind]
    nans = np.resize(np.array([np.nan], dtype), 256)
    out = np.zeros_like(nans)
    run(kind, "((T*)p1)[i] = T(-((float)((const T*)p0)[i]));", nans, out)
    assert set(out.view(np.uint16)) == {0x7FFF}


def pairs(dtype: np.dtype, count: int = 2**15) -> tuple[np.ndarray, np.ndarray]:
    """Return pairs of any codes, of close values that cancel or round, and of all special values."""
    a, b = (RNG.integers(0, 2**16, count, np.uint16).view(dtype) for _ in range(2))
    near = RNG.standard_normal((2, count)).astype(dtype)
    special = np.array(np.meshgrid(SPECIAL, SPECIAL)).reshape(2, -1).astype(dtype)
    both = [np.concatenate(each) for each in ((a, near[0], special[0]), (b, near[1], special[1]))]
    size = -(-len(both[0]) // 256) * 256
    return np.resize(both[0], size), np.resize(both[1], size)


OPERATORS = {"+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("symbol", OPERATORS)
def test_arithmetic_rounds_once(kind, symbol):
    _, dtype = KINDS[kind]
    a, b = pairs(dtype)
    got, assigned = np.zeros_like(a), np.zeros_like(a)
    run(kind, f"((T*)p2)[i] = ((const T*)p0)[i] {symbol} ((const T*)p1)[i];", a, b, got)
    run(kind, f"T x = ((const T*)p0)[i]; x {symbol}= ((const T*)p1)[i]; ((T*)p2)[i] = x;", a, b, assigned)
    same(assigned, got)
    # double holds sums and products exactly, and quotients apart from any midpoint
    exact = OPERATORS[symbol](a.astype(np.float64), b.astype(np.float64))
    same(got, rounded(exact, dtype))


def rounded(exact: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Round from double to nearest even in one step: ml_dtypes goes to bfloat16 through float and rounds twice."""
    if dtype == np.float16:
        return exact.astype(dtype)
    single = exact.astype(np.float32)
    bits = single.view(np.uint32).astype(np.int64)
    inexact = np.isfinite(single) & (single.astype(np.float64) != exact)
    bits = np.where(inexact & (np.abs(single.astype(np.float64)) > np.abs(exact)), bits - 1, bits)
    odd = np.where(inexact, bits | 1, bits).astype(np.uint32).view(np.float32)
    return odd.astype(dtype)


@pytest.mark.parametrize("kind", KINDS)
def test_counting_up_and_down(kind):
    _, dtype = KINDS[kind]
    a = np.resize(np.arange(-100, 100, dtype=np.float32) / 4, 256).astype(dtype)
    out = np.zeros(256 * 4, dtype)
    run(kind, "T x = ((const T*)p0)[i]; T* o = (T*)p1 + 4 * i; o[0] = x++; o[1] = ++x; o[2] = x--; o[3] = -x;", a, out)
    wide = a.astype(np.float32)
    same(out.reshape(256, 4), np.stack([wide, wide + 2, wide + 2, -(wide + 1)], axis=1).astype(dtype))


@pytest.mark.parametrize("kind", KINDS)
def test_fused_multiply_add_rounds_once(kind):
    _, dtype = KINDS[kind]
    a, b = pairs(dtype, 1500)
    c = np.resize(np.concatenate([-(a.astype(np.float32) * b.astype(np.float32)).astype(dtype), a[:300], b]), len(a))
    got = np.zeros_like(a)
    run(kind, "((T*)p3)[i] = __hfma(((const T*)p0)[i], ((const T*)p1)[i], ((const T*)p2)[i]);", a, b, c, got)
    every = np.unique(codes(dtype)[np.isfinite(codes(dtype).astype(np.float32))].astype(np.float64))
    for x, y, z, result in zip(*(each.astype(np.float64) for each in (a, b, c, got)), strict=True):
        if not np.isfinite(x * y + z):
            assert np.isnan(result) == np.isnan(x * y + z)
            continue
        exact = Fraction(x) * Fraction(y) + Fraction(z)
        if np.isinf(result):
            assert abs(exact) >= every[-1] + (every[-1] - every[-2]) / 2
            continue
        place = np.searchsorted(every, result)
        beside = every[max(place - 1, 0) : place + 2]
        assert abs(Fraction(result) - exact) == min(abs(Fraction(other) - exact) for other in beside)


FUNCTIONS = {"hexp": np.exp, "hlog": np.log, "hsin": np.sin, "hcos": np.cos, "hsqrt": np.sqrt, "htanh": np.tanh,
             "hexp2": np.exp2, "hlog2": np.log2, "hfloor": np.floor, "hceil": np.ceil, "hrint": np.rint,
             "htrunc": np.trunc, "hrcp": np.reciprocal}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_functions_of_every_code(kind):
    _, dtype = KINDS[kind]
    every = codes(dtype)
    results = np.zeros((len(every), len(FUNCTIONS)), dtype)
    calls = " ".join(f"o[{at}] = {name}(x);" for at, name in enumerate(FUNCTIONS))
    run(kind, f"T x = ((const T*)p0)[i]; T* o = (T*)p1 + {len(FUNCTIONS)} * i; {calls}", every, results)
    for got, (name, function) in zip(results.T, FUNCTIONS.items(), strict=True):
        same(got.copy(), rounded(function(every.astype(np.float64)), dtype), name)


COMPARISONS = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


@pytest.mark.parametrize("kind", KINDS)
def test_comparisons(kind):
    """Ordered ones do not hold for a NaN, unordered ones do; operators are ordered, but != holds."""
    _, dtype = KINDS[kind]
    a, b = pairs(dtype, 2000)
    out = np.zeros((len(a), 20), np.uint16)
    symbols = ["==", "!=", "<", "<=", ">", ">="]
    x, y = "((const T*)p0)[i]", "((const T*)p1)[i]"
    calls = [f"__h{name}({x}, {y})" for name in COMPARISONS] + [f"__h{name}u({x}, {y})" for name in COMPARISONS]
    calls += [f"({x} {symbol} {y})" for symbol in symbols] + [f"__hisnan({x})", f"__hisinf({x}) != 0"]
    run(kind, " ".join(f"p2[i * 20 + {i}] = {call};" for i, call in enumerate(calls)), a, b, out.reshape(-1))
    wide_a, wide_b = a.astype(np.float32), b.astype(np.float32)
    nan = np.isnan(wide_a) | np.isnan(wide_b)
    orders = [order(wide_a, wide_b) for order in COMPARISONS.values()]
    expected = [order & ~nan for order in orders] + [order | nan for order in orders] + orders
    expected += [np.isnan(wide_a), np.isinf(wide_a)]
    np.testing.assert_array_equal(out, np.stack(expected, axis=1))


@pytest.mark.parametrize("kind", KINDS)
def test_pairs_are_two_numbers(kind):
    _, dtype = KINDS[kind]
    a, b = pairs(dtype, 1000)
    out = np.zeros((len(a), 8), np.uint16)
    two = PAIR[kind]
    text = f"if (i % 2 == 0) {{ {two} x = *({two}*)(p0 + i), y = *({two}*)(p1 + i); {two}* o = ({two}*)(p2 + i * 8);"
    text += " o[0] = __hadd2(x, y); o[1] = x * y; o[2] = __hfma2(x, y, x); o[3] = __hmax2(x, y);"
    text += " o[4] = __hneg2(x); o[5] = h2exp(x); o[6] = __hgt2(x, y); ((unsigned*)o)[7] = __hle2_mask(x, y); }"
    run(kind, text, a, b, out.reshape(-1))
    x, y = a.astype(np.float64), b.astype(np.float64)
    largest = np.where((x == 0) & (y == 0), x + y, np.fmax(x, y))  # +0 is larger than -0
    expected = [x + y, x * y, x * y + x, largest, -x, np.exp(x), (x > y).astype(float)]
    got = out.reshape(-1, 8, 2)
    for column, values in enumerate(expected):
        same(np.ascontiguousarray(got[:, column]).view(dtype).reshape(-1), rounded(values, dtype))
    np.testing.assert_array_equal(got[:, 7].reshape(-1), np.where(x <= y, 0xFFFF, 0))
