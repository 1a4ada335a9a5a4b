"""Tensor cores: results against float64 within a bound from theory, accesses against those of sm_80's machine code."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest

from mlsys_labkit import cuda

RNG = np.random.default_rng(11)
SHAPES = [(16, 16, 16), (32, 8, 16), (8, 32, 16)]
MULTIPLY = """
#include <mma.h>
using namespace nvcuda;

// One warp: D = A B + C for matrices of one tile, in the layouts given by the macros.
__global__ void multiply(const STORED* a, const STORED* b, const SUM* c, SUM* d) {
    wmma::fragment<wmma::matrix_a, ROWS, COLUMNS, DEPTH, TYPE, wmma::LAYOUT_A> fa;
    wmma::fragment<wmma::matrix_b, ROWS, COLUMNS, DEPTH, TYPE, wmma::LAYOUT_B> fb;
    wmma::fragment<wmma::accumulator, ROWS, COLUMNS, DEPTH, SUM> fc;
    wmma::load_matrix_sync(fa, a, STRIDE_A);
    wmma::load_matrix_sync(fb, b, STRIDE_B);
    wmma::load_matrix_sync(fc, c, COLUMNS, wmma::mem_row_major);
    wmma::mma_sync(fc, fa, fb, fc);
    wmma::store_matrix_sync(d, fc, STRIDE_D, wmma::LAYOUT_D);
}
"""


def multiply(shape, names, a, b, c, layouts=("row_major", "row_major", "mem_row_major")):
    rows, columns, depth = shape
    stored, kind, total = names
    a_rows, b_rows, d_rows = (layout.endswith("row_major") for layout in layouts)
    kernel = cuda.compile(
        MULTIPLY,
        backend="simulator",
        defines={
            "STORED": stored, "TYPE": kind, "SUM": total, "ROWS": rows, "COLUMNS": columns, "DEPTH": depth,
            "LAYOUT_A": layouts[0], "LAYOUT_B": layouts[1], "LAYOUT_D": layouts[2],
            "STRIDE_A": depth if a_rows else rows, "STRIDE_B": columns if b_rows else depth,
            "STRIDE_D": columns if d_rows else rows,
        },
    )  # fmt: skip
    d = np.zeros(rows * columns, c.dtype)
    pack = (np.ascontiguousarray(m if by_rows else m.T) for m, by_rows in ((a, a_rows), (b, b_rows)))
    kernel[1, 32](*(m.view(np.uint16) if m.dtype == ml_dtypes.bfloat16 else m for m in pack), c, d)
    return d.reshape(rows, columns) if d_rows else d.reshape(columns, rows).T


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("name", "dtype"), [("half", np.float16), ("__nv_bfloat16", ml_dtypes.bfloat16)])
def test_two_byte_inputs(shape, name, dtype):
    rows, columns, depth = shape
    a, b = RNG.standard_normal((rows, depth)).astype(dtype), RNG.standard_normal((depth, columns)).astype(dtype)
    c = RNG.standard_normal((rows, columns)).astype(np.float32)
    got = multiply(shape, (name, name, "float"), a, b, c)
    exact = a.astype(np.float64) @ b.astype(np.float64) + c
    # One rounding of the sum at its end, after sums in double: half a unit in the last place, and a little.
    assert (np.abs(got - exact) <= 0.5001 * np.spacing(np.abs(exact).astype(np.float32))).all()


LAYOUTS = itertools.product(("row_major", "col_major"), ("row_major", "col_major"), ("mem_row_major", "mem_col_major"))


@pytest.mark.parametrize("layouts", list(LAYOUTS))
def test_layouts(layouts):
    shape = (32, 8, 16)  # no two of its sides are equal
    a, b = RNG.integers(-8, 8, (32, 16)).astype(np.float16), RNG.integers(-8, 8, (16, 8)).astype(np.float16)
    c = RNG.integers(-8, 8, (32, 8)).astype(np.float32)
    np.testing.assert_array_equal(multiply(shape, ("half", "half", "float"), a, b, c, layouts), a @ b + c)


@pytest.mark.parametrize("shape", SHAPES)
def test_half_accumulators(shape):
    rows, columns, depth = shape
    a, b = (RNG.integers(-4, 5, s).astype(np.float16) for s in ((rows, depth), (depth, columns)))
    c = RNG.integers(-4, 5, (rows, columns)).astype(np.float16)
    np.testing.assert_array_equal(multiply(shape, ("half", "half", "half"), a, b, c), a @ b + c)


def test_tf32_takes_ten_bits_of_the_fraction():
    a, b = (RNG.standard_normal(s).astype(np.float32) for s in ((16, 8), (8, 16)))
    c = np.zeros((16, 16), np.float32)
    cut = [(m.view(np.uint32) & 0xFFFFE000).view(np.float32).astype(np.float64) for m in (a, b)]
    got = multiply((16, 16, 8), ("float", "wmma::precision::tf32", "float"), a, b, c)
    exact = cut[0] @ cut[1]
    assert (np.abs(got - exact) <= 0.5001 * np.spacing(np.abs(exact).astype(np.float32))).all()


def test_float_to_tf32_rounds_to_the_nearest():
    kernel = cuda.compile(
        "#include <mma.h>\n__global__ void f(const float* x, float* y) {"
        " y[threadIdx.x] = nvcuda::wmma::__float_to_tf32(x[threadIdx.x]); }",
        backend="simulator",
    )
    x = np.concatenate([RNG.standard_normal(30), [1 + 2.0**-11, -(1 + 2.0**-11)]]).astype(np.float32)
    y = np.zeros(32, np.float32)
    kernel[1, 32](x, y)
    mantissa, exponent = np.frexp(x.astype(np.float64))
    away = np.sign(mantissa) * np.floor(np.abs(mantissa) * 2**11 + 0.5) / 2**11
    np.testing.assert_array_equal(y, np.ldexp(away, exponent))


@pytest.mark.parametrize(("name", "dtype"), [("signed char", np.int8), ("unsigned char", np.uint8)])
@pytest.mark.parametrize("shape", SHAPES)
def test_integers_are_exact(shape, name, dtype):
    rows, columns, depth = shape
    limits = np.iinfo(dtype)
    a, b = (RNG.integers(limits.min, limits.max, s, dtype) for s in ((rows, depth), (depth, columns)))
    c = RNG.integers(-1000, 1000, (rows, columns), np.int32)
    np.testing.assert_array_equal(multiply(shape, (name, name, "int"), a, b, c), a.astype(int) @ b.astype(int) + c)


def test_doubles():
    a, b, c = (RNG.standard_normal(s) for s in ((8, 4), (4, 8), (8, 8)))
    got = multiply((8, 8, 4), ("double", "double", "double"), a, b, c)
    # Four products and five terms, each rounded: gamma_5 of Higham, "Accuracy and Stability", section 3.1.
    assert (np.abs(got - (a @ b + c)) <= 2 * 5 * 2.0**-53 * (np.abs(a) @ np.abs(b) + np.abs(c))).all()


def test_each_element_stands_once_in_an_accumulator():
    kernel = cuda.compile(
        "#include <mma.h>\nusing namespace nvcuda;\n__global__ void f(float* out) {"
        " wmma::fragment<wmma::accumulator, 16, 16, 16, float> c;"
        " for (int i = 0; i < c.num_elements; ++i) c.x[i] = threadIdx.x * c.num_elements + i;"
        " wmma::store_matrix_sync(out, c, 16, wmma::mem_row_major); }",
        backend="simulator",
    )
    out = np.zeros((16, 16), np.float32)
    kernel[1, 32](out)
    assert sorted(out.ravel().tolist()) == list(range(256))
    # PTX ISA, mma.m16n8k16: c0 and c1 of lane 4g+t are in row g, columns 2t and 2t+1; c2 and c3 eight rows below.
    assert out[0, :4].tolist() == [0, 1, 8, 9]
    assert out[8, :2].tolist() == [2, 3]
    assert out[0, 8:10].tolist() == [4, 5]
    assert out[3, 2] == 13 * 8


LOAD = """
#include <mma.h>
using namespace nvcuda;

__global__ void from_global(const half* a, float* out) {
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> fa;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> fc;
    wmma::fill_fragment(fc, 0.0f);
    wmma::load_matrix_sync(fa, a, LD);
    wmma::store_matrix_sync(out, fc, LD, wmma::mem_row_major);
}

__global__ void from_shared(const half* a, float* out) {
    __shared__ half tile[16 * LD];
    for (int i = threadIdx.x; i < 16 * LD; i += 32) tile[i] = a[i];
    __syncwarp();
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> fa;
    wmma::load_matrix_sync(fa, tile, LD);
    out[threadIdx.x] = float(fa.x[0]);
}
"""


@pytest.mark.parametrize("stride", [16, 24, 64])
def test_a_tile_from_global_memory_is_four_loads_of_four_bytes_a_lane(stride):
    # Eight lines of 16 bytes a load, each within one sector. Stores are of eight bytes a lane: eight lines of 32 bytes.
    kernel = cuda.compile(LOAD, "from_global", backend="simulator", defines={"LD": stride})
    profile = kernel.profile[1, 32](np.ones(16 * stride, np.float16), np.zeros(16 * stride, np.float32))
    assert profile.total("global", "load", "requests") == 4
    assert profile.total("global", "load", "sectors") == 4 * 8
    assert profile.total("global", "store", "requests") == 4
    assert profile.total("global", "store", "sectors") == 4 * 8


@pytest.mark.parametrize(("stride", "wavefronts"), [(16, 8), (24, 4), (64, 32)])
def test_padding_frees_a_tile_in_shared_memory_of_bank_conflicts(stride, wavefronts):
    # ldmatrix: four blocks of eight lines of 16 bytes, a wavefront each at best. Lines 32 bytes apart share banks in
    # pairs, lines 128 bytes apart all of them.
    kernel = cuda.compile(LOAD, "from_shared", backend="simulator", defines={"LD": stride})
    profile = kernel.profile[1, 32](np.ones(16 * stride, np.float16), np.zeros(32, np.float32))
    line = next(i for i, text in enumerate(LOAD.splitlines(), 1) if "load_matrix_sync(fa, tile" in text)
    (count,) = (one for one in profile.lines if one.line == line and one.op == "load")
    assert (count.bytes_per_lane, count.requests, count.wavefronts) == (16, 1, wavefronts)


def test_flops_of_the_tensor_cores():
    kernel = cuda.compile(
        "#include <mma.h>\nusing namespace nvcuda;\n__global__ void f(half* p, float* out) {"
        " wmma::fragment<wmma::matrix_a, 32, 8, 16, half, wmma::row_major> a;"
        " wmma::fragment<wmma::matrix_b, 32, 8, 16, half, wmma::row_major> b;"
        " wmma::fragment<wmma::accumulator, 32, 8, 16, float> c;"
        " wmma::load_matrix_sync(a, p, 16); wmma::load_matrix_sync(b, p, 8); wmma::fill_fragment(c, 0.0f);"
        " for (int i = 0; i < 3; ++i) wmma::mma_sync(c, a, b, c);"
        " wmma::store_matrix_sync(out, c, 8, wmma::mem_row_major); }",
        backend="simulator",
    )
    profile = kernel.profile[5, 64](np.ones(512, np.float16), np.zeros(256, np.float32))
    assert profile.instructions["tensor"] == profile.flops == 5 * 2 * 3 * (2 * 32 * 8 * 16)


@pytest.mark.parametrize(
    ("offset", "stride", "says"), [(8, 16, "multiple of 32 bytes"), (0, 20, "multiple of 16 bytes")]
)
def test_tiles_that_a_gpu_would_misread_are_found(offset, stride, says):
    kernel = cuda.compile(
        "#include <mma.h>\nusing namespace nvcuda;\n"
        "__global__ void f(const half* p, float* out, int offset, int stride) {"
        " wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> a;"
        " wmma::load_matrix_sync(a, p + offset, stride); out[threadIdx.x] = float(a.x[0]); }",
        backend="simulator",
    )
    (finding, *_) = kernel.check[1, 32](np.ones(512, np.float16), np.zeros(32, np.float32), offset, stride)
    assert finding.kind == "assertion"
    assert says in finding.message


def test_a_tile_beyond_the_matrix_is_found():
    kernel = cuda.compile(LOAD, "from_global", backend="simulator", defines={"LD": 16})
    (finding, *_) = kernel.check[1, 32](np.ones(15 * 16, np.float16), np.zeros(256, np.float32))
    assert finding.kind == "out_of_bounds"
    assert "load_matrix_sync(fa, a, LD)" in finding.source_line


@pytest.mark.parametrize(
    "fragment", ["matrix_a, 16, 16, 8, half, row_major", "matrix_a, 16, 16, 16, float, row_major",
                 "matrix_b, 8, 8, 32, experimental::precision::s4, col_major"]
)  # fmt: skip
def test_tiles_that_do_not_exist_are_refused_in_one_line(fragment):
    source = f"#include <mma.h>\nusing namespace nvcuda::wmma;\n__global__ void f() {{ fragment<{fragment}> x; }}"
    with pytest.raises(cuda.CudaCompileError, match="wmma has no such tile, or it is not simulated") as caught:
        cuda.compile(source, backend="simulator", strict=False)
    assert caught.value.diagnostics[0].line == 3


def test_half_a_warp_cannot_multiply() -> None:
    source = """#include <mma.h>
    using namespace nvcuda;
    __global__ void k(const half* a, float* c) {
        wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> left;
        wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> right;
        wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
        wmma::fill_fragment(sum, 0.0f);
        wmma::load_matrix_sync(left, a, 16);
        wmma::load_matrix_sync(right, a, 16);
        wmma::mma_sync(sum, left, right, sum);
        wmma::store_matrix_sync(c, sum, 16, wmma::mem_row_major);
    }"""
    kernel = cuda.compile(source, backend="simulator")
    a, c = np.ones((16, 16), np.float16), np.zeros((16, 16), np.float32)
    kernel[1, 32](a, c)
    assert (c == 16).all()
    (finding,) = kernel.check[1, 16](a, c)
    assert (finding.kind, finding.line) == ("assertion", 10)
    assert "all 32 lanes" in finding.message
