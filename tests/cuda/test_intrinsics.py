"""Integer and float intrinsics against numpy, Python's integers and exact fractions."""

from __future__ import annotations

import bisect
import functools
import math
from collections.abc import Callable
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from mlsys_labkit import cuda

RNG = np.random.default_rng(7)
WORDS = np.concatenate([RNG.integers(0, 2**32, 250, dtype=np.uint32), [0, 1, 2**31, 2**32 - 1, 0x80808080, 0xFF00FF00]])
WORDS = WORDS.astype(np.uint32)


def binary(expression: str, out: str = "unsigned") -> np.ndarray:
    """Evaluate ``expression`` on the unsigned words a and b for each pair of neighbours in WORDS."""
    kernel = cuda.compile(
        f"__global__ void f(const unsigned* words, {out}* out) {{ int i = threadIdx.x;"
        f" unsigned a = words[i], b = words[(i + 1) % blockDim.x]; out[i] = {expression}; }}",
        backend="simulator",
    )
    result = np.zeros(len(WORDS), {"unsigned": np.uint32, "int": np.int32, "float": np.float32}[out])
    kernel[1, len(WORDS)](WORDS, result)
    return result


A = [int(word) for word in WORDS]
B = A[1:] + A[:1]


def signed(word: int) -> int:
    return word - 2**32 if word >= 2**31 else word


def bytes_of(word: int) -> list[int]:
    return list(word.to_bytes(4, "little"))


INTEGER_CASES: list[tuple[str, Callable[[int, int], int]]] = [
    ("__popc(a)", lambda a, b: a.bit_count()),
    ("__clz(a)", lambda a, b: 32 - a.bit_length()),
    ("__ffs(a)", lambda a, b: (a & -a).bit_length()),
    ("__brev(a)", lambda a, b: int(f"{a:032b}"[::-1], 2)),
    ("__umulhi(a, b)", lambda a, b: a * b >> 32),
    ("__mulhi(int(a), int(b))", lambda a, b: (signed(a) * signed(b) >> 32) % 2**32),
    ("__umul24(a, b)", lambda a, b: (a % 2**24) * (b % 2**24) % 2**32),
    ("__usad(a, b, 7u)", lambda a, b: (abs(a - b) + 7) % 2**32),
    ("__funnelshift_l(a, b, 5)", lambda a, b: ((b << 32 | a) << 5 >> 32) % 2**32),
    ("__funnelshift_r(a, b, 37)", lambda a, b: ((b << 32 | a) >> 5) % 2**32),
    ("__byte_perm(a, b, 0x6420)", lambda a, b: int.from_bytes(bytes((bytes_of(a) + bytes_of(b))[::2]), "little")),
    ("__dp4a(a, b, 3u)", lambda a, b: sum(x * y for x, y in zip(bytes_of(a), bytes_of(b), strict=True)) + 3),
    ("__vadd4(a, b)", lambda a, b: int.from_bytes(
        bytes((x + y) % 256 for x, y in zip(bytes_of(a), bytes_of(b), strict=True)), "little")),
    ("__vmaxu4(a, b)", lambda a, b: int.from_bytes(bytes(map(max, bytes_of(a), bytes_of(b))), "little")),
    ("__uhadd(a, b)", lambda a, b: (a + b) // 2),
    ("__urhadd(a, b)", lambda a, b: (a + b + 1) // 2),
]  # fmt: skip


@functools.cache
def integer_results() -> np.ndarray:
    """Return a row for each pair of neighbours in WORDS and a column for each of INTEGER_CASES."""
    calls = " ".join(f"o[{at}] = {expression};" for at, (expression, _) in enumerate(INTEGER_CASES))
    results = np.zeros((len(WORDS), len(INTEGER_CASES)), np.uint32)
    cuda.compile(
        "__global__ void f(const unsigned* words, unsigned* out) { int i = threadIdx.x; unsigned a = words[i],"
        f" b = words[(i + 1) % blockDim.x], *o = out + {len(INTEGER_CASES)} * i; {calls} }}",
        backend="simulator",
    )[1, len(WORDS)](WORDS, results)
    return results


@pytest.mark.parametrize("at", range(len(INTEGER_CASES)), ids=[expression for expression, _ in INTEGER_CASES])
def test_integers(at):
    oracle = INTEGER_CASES[at][1]
    assert integer_results()[:, at].tolist() == [oracle(a, b) for a, b in zip(A, B, strict=True)]


def test_find_the_nth_set_bit():
    got = binary("__fns(a, 0, 3)")
    for word, place in zip(A, got.tolist(), strict=True):
        bits = [bit for bit in range(32) if word >> bit & 1]
        assert place == (bits[2] if len(bits) > 2 else 2**32 - 1)


FLOATS = (RNG.standard_normal(256) * 10.0 ** RNG.integers(-6, 6, 256)).astype(np.float32)


OPERATIONS = ("add", "mul", "div")
ROUNDING_MODES = ("rn", "rz", "ru", "rd")


@functools.cache
def roundings() -> cuda.Kernels:
    kernels = (
        f"__global__ void {operation}_{mode}(const float* x, const float* y, float* out) {{ int i = threadIdx.x;"
        f" out[i] = __f{operation}_{mode}(x[i], y[i]); }}"
        for operation in OPERATIONS
        for mode in ROUNDING_MODES
    )
    return cuda.compile_all("\n".join(kernels), backend="simulator")


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("mode", ROUNDING_MODES)
def test_rounding_modes(operation, mode):
    x, y, got = FLOATS, FLOATS[::-1].copy(), np.zeros(256, np.float32)
    roundings()[f"{operation}_{mode}"][1, 256](x, y, got)
    for left, right, result in zip(x, y, got, strict=True):
        a, b = Fraction(float(left)), Fraction(float(right))
        exact = {"add": a + b, "mul": a * b, "div": a / b}[operation]
        below, above = (np.nextafter(result, np.float32(way)) for way in (-np.inf, np.inf))
        value = Fraction(float(result))
        if mode == "rn":
            assert abs(value - exact) <= min(abs(Fraction(float(each)) - exact) for each in (below, above))
        elif mode == "rd" or (mode == "rz" and exact > 0):
            assert value <= exact < Fraction(float(above))
        else:
            assert Fraction(float(below)) < exact <= value


def test_conversion_to_integers_saturates():
    kernel = cuda.compile(
        "__global__ void f(const float* x, int* out, unsigned* positive) { int i = threadIdx.x;"
        " out[i] = __float2int_rn(x[i]); positive[i] = __float2uint_rz(x[i]); }",
        backend="simulator",
    )
    x = np.array([2.5, 3.5, -2.5, 1e20, -1e20, np.nan, -7.9, 7.9], np.float32)
    out, positive = np.zeros(8, np.int32), np.zeros(8, np.uint32)
    kernel[1, 8](x, out, positive)
    assert out.tolist() == [2, 4, -2, 2**31 - 1, -(2**31), 0, -8, 8]
    assert positive.tolist() == [2, 3, 0, 2**32 - 1, 0, 0, 0, 7]


@pytest.mark.parametrize(
    ("header", "cast", "dtype"),
    [("cuda_fp16.h", "__float2half", np.float16), ("cuda_bf16.h", "__float2bfloat16", ml_dtypes.bfloat16)],
)
def test_16_bit_numbers_round_to_the_nearest_even(header, cast, dtype):
    name = "half" if dtype is np.float16 else "bfloat16"
    kernel = cuda.compile(
        f"#include <{header}>\n__global__ void f(const float* x, unsigned short* out) {{"
        f" int i = blockIdx.x * blockDim.x + threadIdx.x; out[i] = __{name}_as_ushort({cast}(x[i])); }}",
        backend="simulator",
    )
    every = np.arange(2**16, dtype=np.uint16).view(dtype).astype(np.float32)
    finite = np.sort(every[np.isfinite(every)])
    halfway = ((finite[:-1].astype(np.float64) + finite[1:]) / 2).astype(np.float32)
    x = np.concatenate([finite, halfway, RNG.standard_normal(1000).astype(np.float32) * 1e3])
    x = np.resize(x, -(-len(x) // 256) * 256)
    got = np.zeros(len(x), np.uint16)
    kernel[len(x) // 256, 256](x, got)
    np.testing.assert_array_equal(got, x.astype(dtype).view(np.uint16))


def test_16_bit_numbers_directed():
    kernel = cuda.compile(
        "#include <cuda_fp16.h>\n__global__ void f(const float* x, float* down, float* up, float* zero) {"
        " int i = threadIdx.x;"
        " down[i] = __half2float(__float2half_rd(x[i])); up[i] = __half2float(__float2half_ru(x[i]));"
        " zero[i] = __half2float(__float2half_rz(x[i])); }",
        backend="simulator",
    )
    x = np.concatenate([FLOATS[np.abs(FLOATS) < 6e4][:200], [1e-9, -1e-9, 2049.0, -2049.0]]).astype(np.float32)
    down, up, zero = (np.zeros(len(x), np.float32) for _ in range(3))
    kernel[1, len(x)](x, down, up, zero)
    assert (down <= x).all()
    assert (up >= x).all()
    exact = x.astype(np.float16).astype(np.float32) == x
    step = np.nextafter(down.astype(np.float16), np.float16(np.inf)).astype(np.float32)
    np.testing.assert_array_equal(up[~exact], step[~exact])  # neighbours, with x between them
    np.testing.assert_array_equal(zero, np.where(x > 0, down, up))


MODES = ("rd", "ru", "rz", "rn")
INTEGERS = {
    "short": ("short", np.int16),
    "ushort": ("unsigned short", np.uint16),
    "int": ("int", np.int32),
    "uint": ("unsigned", np.uint32),
    "ll": ("long long", np.int64),
    "ull": ("unsigned long long", np.uint64),
}


@pytest.mark.parametrize("integer", INTEGERS)
@pytest.mark.parametrize(("name", "dtype"), [("half", np.float16), ("bfloat16", ml_dtypes.bfloat16)])
def test_16_bit_numbers_and_integers(name, dtype, integer):
    kind, whole = INTEGERS[integer]
    told = "".join(f" given[4 * i + {at}] = __{integer}2{name}_{mode}(x[i]);" for at, mode in enumerate(MODES))
    back = "".join(f" given[4 * i + {at}] = __{name}2{integer}_{mode}(x[i]);" for at, mode in enumerate(MODES))
    kernels = cuda.compile_all(
        "#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n"
        f"using Number = decltype(__float2{name}(0.0f));\n"
        f"__global__ void from({kind}* x, Number* given) {{ int i = threadIdx.x;{told} }}\n"
        f"__global__ void to(Number* x, {kind}* given) {{ int i = threadIdx.x;{back} }}\n",
        backend="simulator",
    )
    least, most = (int(end) for end in (np.iinfo(whole).min, np.iinfo(whole).max))
    every = np.arange(2**16, dtype=np.uint16).view(dtype)
    exact = every[np.isfinite(every.astype(np.float32))].astype(np.float64)
    ladder = sorted(set(exact.tolist()))  # Python compares integers with floats exactly

    near = {2**k + d for k in range(most.bit_length() + 1) for d in (-1, 0, 1, 2**k >> 9, (2**k >> 9) + 1)}
    x = sorted(value for value in {*near, *(-value for value in near), least, most} if least <= value <= most)
    given = np.zeros((len(x), 4), np.uint16)
    kernels["from"][1, len(x)](np.array(x, whole), given)
    for value, (down, up, zero, nearest) in zip(x, given.view(dtype).astype(np.float64).tolist(), strict=True):
        at = bisect.bisect_right(ladder, value)
        below = ladder[at - 1] if at else -math.inf
        above = below if below == value else ladder[at] if at < len(ladder) else math.inf
        assert (down, up, zero) == (below, above, above if value < 0 else below), value
        assert nearest in (below, above)
        if abs(value) < ladder[-1]:
            assert abs(Fraction(nearest) - value) <= (Fraction(above) - Fraction(below)) / 2, value

    codes = np.concatenate([every[::131], every[-140:], every[:10]])
    got = np.zeros((len(codes), 4), whole)
    kernels.to[1, len(codes)](codes.view(np.uint16), got)
    with np.errstate(invalid="ignore"):  # NaNs are among the codes
        values = codes.astype(np.float64).tolist()
    for value, said in zip(values, got.tolist(), strict=True):
        if math.isinf(value):
            assert said == [most if value > 0 else least] * 4
        elif not math.isnan(value):
            rounded = (math.floor(value), math.ceil(value), math.trunc(value), round(value))
            assert said == [min(max(one, least), most) for one in rounded], value
