"""Special functions against SciPy's own through torch, packed arithmetic against numpy's, fp8 against ml_dtypes."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from mlsys_labkit import cuda

torch = pytest.importorskip("torch")
RNG = np.random.default_rng(5)


def doubles(expression: str, x: np.ndarray) -> np.ndarray:
    kernel = cuda.compile(
        "__global__ void f(const double* in, double* out) {"
        f" int i = threadIdx.x; double x = in[i]; out[i] = {expression}; }}",
        backend="simulator",
    )
    out = np.zeros_like(x)
    kernel[1, len(x)](x, out)
    return out


INSIDE = np.concatenate([np.linspace(-0.999, 0.999, 201), [1 - 1e-12, 1e-14 - 1, 1e-10, 0.0, 0.5, -0.5, 1e-300]])


@pytest.mark.parametrize(
    ("expression", "oracle", "x"),
    [
        ("erfinv(x)", torch.erfinv, INSIDE),
        ("normcdfinv(x)", torch.special.ndtri, (INSIDE + 1) / 2),
        ("erfcx(x)", torch.special.erfcx, INSIDE * 30),
        ("cyl_bessel_i0(x)", torch.special.i0, INSIDE * 60),
        ("cyl_bessel_i1(x)", torch.special.i1, INSIDE * 60),
        ("rsqrt(x)", torch.rsqrt, np.abs(INSIDE) + 1e-3),
        ("normcdf(x)", lambda t: torch.special.log_ndtr(t).exp(), INSIDE * 6),
    ],
)
def test_special_functions(expression, oracle, x):
    np.testing.assert_allclose(doubles(expression, x), oracle(torch.tensor(x)).numpy(), rtol=2e-14, atol=1e-300)


def test_inverses_at_their_ends():
    ends = doubles("erfcinv(x)", np.array([0.0, 2.0, 1.0, -1.0, 3.0, np.nan]))
    assert ends[:3].tolist() == [np.inf, -np.inf, 0.0]
    assert np.isnan(ends[3:]).all()


LANES = {"2": 16, "4": 8}


@pytest.mark.parametrize("width", LANES)
@pytest.mark.parametrize("signed", [True, False])
def test_packed_arithmetic(width, signed):
    bits = LANES[width]
    dtype = np.dtype(f"{'i' if signed else 'u'}{bits // 8}")
    letter = "s" if signed else "u"
    limits = np.iinfo(dtype)
    oracles = {
        f"__vadd{letter}s{width}": lambda a, b: np.clip(a + b, limits.min, limits.max),
        f"__vsub{letter}s{width}": lambda a, b: np.clip(a - b, limits.min, limits.max),
        f"__vmax{letter}{width}": np.maximum,
        f"__vmin{letter}{width}": np.minimum,
        f"__vabsdiff{letter}{width}": lambda a, b: np.abs(a - b),
        f"__vcmpgt{letter}{width}": lambda a, b: -(a > b).astype(int),
        f"__vsetle{letter}{width}": lambda a, b: (a <= b).astype(int),
        f"__vcmpeq{width}": lambda a, b: -(a == b).astype(int),
        f"__vsub{width}": lambda a, b: a - b,
    }
    words = RNG.integers(0, 2**32, (2, 256), np.uint32)
    words[:, :3] = 0, 0x80808080, 0x7FFF8000
    a, b = (row.view(dtype).astype(np.int64) for row in words)
    calls = "".join(f" out[{n} * 256 + i] = {name}(a[i], b[i]);" for n, name in enumerate(oracles))
    kernel = cuda.compile(
        f"__global__ void f(const unsigned* a, const unsigned* b, unsigned* out) {{ int i = threadIdx.x;{calls} }}",
        backend="simulator",
    )
    out = np.zeros((len(oracles), 256), np.uint32)
    kernel[1, 256](words[0], words[1], out)
    for row, (name, oracle) in zip(out, oracles.items(), strict=True):
        np.testing.assert_array_equal(row.view(dtype), np.asarray(oracle(a, b)).astype(dtype), name)


@pytest.mark.parametrize(
    ("kind", "dtype", "largest"), [("e4m3", ml_dtypes.float8_e4m3fn, 448.0), ("e5m2", ml_dtypes.float8_e5m2, 57344.0)]
)
def test_fp8(kind, dtype, largest):
    kernel = cuda.compile(
        "#include <cuda_fp8.h>\n__global__ void f(const float* x, unsigned char* code, float* back) {"
        f" int i = blockIdx.x * blockDim.x + threadIdx.x; __nv_fp8_{kind} one(x[i]);"
        " code[i] = one.__x; back[i] = float(one); }",
        backend="simulator",
    )
    every = np.arange(256, dtype=np.uint8).view(dtype).astype(np.float32)
    finite = np.sort(every[np.isfinite(every)])
    halfway = (finite[:-1] + finite[1:]) / 2
    near = np.concatenate([np.nextafter(halfway, np.float32(way)) for way in (-np.inf, np.inf)])
    beyond = np.array([1e6, -1e6, np.inf, -np.inf], np.float32)
    x = np.resize(np.concatenate([finite, halfway, near, beyond]), 1280).astype(np.float32)
    code, back = np.zeros(1280, np.uint8), np.zeros(1280, np.float32)
    kernel[5, 256](x, code, back)
    expected = np.clip(x, -largest, largest).astype(dtype)  # CUDA's constructors saturate
    np.testing.assert_array_equal(code, expected.view(np.uint8))
    np.testing.assert_array_equal(back, expected.astype(np.float32))
