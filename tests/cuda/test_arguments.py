"""Arguments as a kernel gets them: every type by its bits, arrays that share memory, and what comes back."""

from __future__ import annotations

import ctypes
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray

from mlsys_labkit import cuda
from mlsys_labkit.cuda.kernel.arguments.parameters import read_parameters
from mlsys_labkit.cuda.kernel.arguments.scalars import value_bytes

COPY = """template <typename T> __global__ void copy(const T* from, T* to, int n)
{
    if (threadIdx.x < n) to[threadIdx.x] = from[threadIdx.x];
}"""


def through(kernel: cuda.Kernel, source: Any, target: Any, n: int) -> None:
    kernel[1, 32](source, target, n)


@pytest.mark.parametrize(
    ("element", "dtype"),
    [
        ("char", "int8"),
        ("signed char", "int8"),
        ("unsigned char", "uint8"),
        ("short", "int16"),
        ("int", "int32"),
        ("unsigned", "uint32"),
        ("long long", "int64"),
        ("size_t", "uint64"),
        ("float", "float32"),
        ("double", "float64"),
        ("bool", "bool"),
        ("__half", "float16"),
        ("unsigned char", "bool"),
        ("int", "uint32"),
        ("float2", "complex64"),
        ("float4", "float32"),
        ("int2", "int32"),
        ("double2", "float64"),
    ],
)
def test_arrays_of_every_type(element: str, dtype: str) -> None:
    kernel = cuda.compile(COPY, f"copy<{element}>", backend="simulator")
    source = np.arange(1, 9).astype(dtype)
    target = np.zeros_like(source)
    through(kernel, source, target, 2)
    width = max(1, {"float4": 4, "int2": 2, "double2": 2}.get(element, 1))
    np.testing.assert_array_equal(target[: 2 * width], source[: 2 * width])
    assert not target[2 * width :].any()


def test_bfloat16_of_torch_and_of_ml_dtypes() -> None:
    kernel = cuda.compile(COPY, "copy<__nv_bfloat16>", backend="simulator")
    source = torch.tensor([1.5, -2.25, 3e38], dtype=torch.bfloat16)
    target = torch.zeros_like(source)
    through(kernel, source, target, 3)
    assert torch.equal(source, target)
    values = np.array([1.5, -2.0], ml_dtypes.bfloat16)
    back = np.zeros(2, np.uint16)
    through(kernel, values, back, 2)
    np.testing.assert_array_equal(back, values.view(np.uint16))


def test_torch_tensors_are_written_in_place() -> None:
    kernel = cuda.compile(COPY, "copy<float>", backend="simulator")
    source = torch.arange(6, dtype=torch.float32, requires_grad=True)
    target = torch.zeros(2, 3)
    through(kernel, source, target, 6)
    assert torch.equal(target.reshape(-1), source.detach())
    half = torch.zeros(4, dtype=torch.float16)
    through(cuda.compile(COPY, "copy<__half>", backend="simulator"), torch.ones(4, dtype=torch.float16), half, 4)
    assert torch.equal(half, torch.ones(4, dtype=torch.float16))


SCALARS = """struct Pair { float a; int b; };
__global__ void take(char* out, signed char a, unsigned short b, int c, long long d, bool e, float f, double g,
                     __half h, __nv_bfloat16 i, Pair p, float4 q)
{
    memcpy(out, &a, 1); memcpy(out + 2, &b, 2); memcpy(out + 4, &c, 4); memcpy(out + 8, &d, 8); memcpy(out + 16, &e, 1);
    memcpy(out + 20, &f, 4); memcpy(out + 24, &g, 8); memcpy(out + 32, &h, 2); memcpy(out + 34, &i, 2);
    memcpy(out + 40, &p, 8); memcpy(out + 48, &q, 16);
}"""


@settings(max_examples=25, deadline=None)
@given(
    st.integers(-128, 127),
    st.integers(0, 65535),
    st.integers(-(2**31), 2**31 - 1),
    st.integers(-(2**63), 2**63 - 1),
    st.booleans(),
    st.floats(width=32),
    st.floats(),
    st.floats(width=16),
    st.floats(-1e30, 1e30),
)
def test_values_arrive_bit_for_bit(
    a: int, b: int, c: int, d: int, e: bool, f: float, g: float, h: float, i: float
) -> None:
    kernel = cuda.compile(SCALARS, backend="simulator")
    out = np.zeros(64, np.int8)
    pair = np.array([(f, c)], dtype=[("a", "f4"), ("b", "i4")])
    quad = np.array([f, 1, 2, 3], np.float32)
    kernel[1, 1](out, a, b, c, d, e, f, g, h, i, pair[0], quad)
    got = out.tobytes()
    want: list[tuple[int, NDArray[Any]]] = [
        (0, np.array(a, np.int8)), (2, np.array(b, np.uint16)), (4, np.array(c, np.int32)), (8, np.array(d, np.int64)),
        (16, np.array(e)), (20, np.array(f, np.float32)), (24, np.array(g)), (32, np.array(h, np.float16)),
        (40, pair), (48, quad),
    ]  # fmt: skip
    for offset, value in want:
        assert same_number(got[offset : offset + value.nbytes], value), (offset, value)
    with np.errstate(over="ignore"):
        assert same_number(got[34:36], np.array(np.float32(i), ml_dtypes.bfloat16))


def same_number(data: bytes, value: NDArray[Any]) -> bool:
    found = np.frombuffer(data, value.dtype)
    if value.dtype.names is None and np.isnan(np.asarray(value, np.float64)).all():
        return bool(np.isnan(np.asarray(found, np.float64)).all())
    return data == value.tobytes()


@given(st.integers(0, 2**16 - 1))
@settings(max_examples=300, deadline=None)
def test_bfloat16_rounds_as_ml_dtypes_does(bits: int) -> None:
    """Numbers between, on and beside the halfway points of neighbouring bfloat16."""
    (parameter,) = read_parameters("bfloat16\t2\t2\t\t\t\t__nv_bfloat16\n")
    for tail in (0, 0x7FFF, 0x8000, 0x8001):
        number = float(np.array(bits << 16 | tail, np.uint32).view(np.float32))
        want = np.array(np.float32(number), ml_dtypes.bfloat16)
        got = np.frombuffer(value_bytes("x", parameter, number), ml_dtypes.bfloat16)[0]
        assert got == want or (np.isnan(got) and np.isnan(want))


def test_structs_as_bytes_ctypes_and_void() -> None:
    class Pair(ctypes.Structure):
        _fields_ = (("a", ctypes.c_float), ("b", ctypes.c_int))

    kernel = cuda.compile(
        "struct Pair { float a; int b; }; __global__ void f(float* x, Pair p) { x[0] = p.a; x[1] = p.b; }",
        backend="simulator",
    )
    record = np.array([(2.5, 7)], dtype=[("a", "f4"), ("b", "i4")])
    for value in (Pair(2.5, 7), record[0], record, bytes(Pair(2.5, 7)), record.tobytes()):
        x = np.zeros(2, np.float32)
        kernel[1, 1](x, value)
        np.testing.assert_array_equal(x, [2.5, 7])


SHIFT = "__global__ void shift(int* to, const int* from, int n) { for (int i = 0; i < n; ++i) to[i] = from[i] + 100; }"


def test_the_same_array_twice_is_one_array() -> None:
    kernel = cuda.compile(SHIFT, backend="simulator")
    x = np.arange(4, dtype=np.int32)
    kernel[1, 1](x, x, 4)
    np.testing.assert_array_equal(x, [100, 101, 102, 103])


def test_overlapping_views_share_memory() -> None:
    """One thread that copies forwards by one: each step reads what the one before wrote, as through C's pointers."""
    kernel = cuda.compile(SHIFT, backend="simulator")
    x = np.zeros(5, np.int32)
    kernel[1, 1](x[1:], x[:-1], 4)
    np.testing.assert_array_equal(x, [0, 100, 200, 300, 400])


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 12)), min_size=2, max_size=2))
@settings(max_examples=40, deadline=None)
def test_views_behave_as_in_numpy(views: list[tuple[int, int]]) -> None:
    kernel = cuda.compile(SHIFT, backend="simulator")
    (to_begin, to_size), (from_begin, from_size) = views
    n = min(to_size, from_size)
    found, expected = np.arange(32, dtype=np.int32), np.arange(32, dtype=np.int32)
    kernel[1, 1](found[to_begin : to_begin + to_size], found[from_begin : from_begin + from_size], n)
    for i in range(n):
        expected[to_begin + i] = expected[from_begin + i] + 100
    np.testing.assert_array_equal(found, expected)


def test_only_pointers_that_are_not_const_come_back() -> None:
    kernel = cuda.compile(
        "__global__ void f(const float* a, float* b) { const_cast<float*>(a)[0] = 5; b[0] = 6; }", backend="simulator"
    )
    a, b = np.zeros(1, np.float32), np.zeros(1, np.float32)
    kernel[1, 1](a, b)
    assert (a[0], b[0]) == (0, 6)
    a.flags.writeable = False
    kernel[1, 1](a, b)


def test_empty_arrays_and_null() -> None:
    kernel = cuda.compile(
        "__global__ void f(const float* a, int* is_null, int n) { if (n) is_null[0] = a == nullptr; }",
        backend="simulator",
    )
    out = np.full(1, 7, np.int32)
    kernel[1, 1](np.zeros((0, 3), np.float32), out, 0)
    assert out[0] == 7
    kernel[1, 1](0, out, 1)
    assert out[0] == 1


def test_pointers_in_an_array() -> None:
    kernel = cuda.compile(
        "__global__ void sum(float** rows, float* out, int n) { for (int i = 0; i < n; ++i) out[0] += rows[i][1]; }",
        backend="simulator",
    )
    rows = [cuda.to_device(np.array([0, value], np.float32)) for value in (1, 20, 300)]
    if rows[0].on_gpu:
        pytest.skip("the addresses are a GPU's")
    out = np.zeros(1, np.float32)
    kernel[1, 1](np.array([row.address for row in rows], np.uint64), out, 3)
    assert out[0] == 321


def test_device_arrays_stay_on_the_device() -> None:
    kernel = cuda.compile("__global__ void twice(double* x) { x[threadIdx.x] *= 2; }")
    x = cuda.to_device(np.arange(4.0).reshape(2, 2))
    for _ in range(3):
        kernel[1, 4](x)
    np.testing.assert_array_equal(x.numpy(), [[0, 8], [16, 24]])
    assert (x.shape, x.dtype, x.nbytes, x.size, len(x)) == ((2, 2), np.float64, 32, 4, 2)
    x.copy_from(1)
    np.testing.assert_array_equal(np.asarray(x), np.ones((2, 2)))
    x.free()
    x.free()
    with pytest.raises(cuda.CudaError, match="freed"):
        kernel[1, 4](x)


def test_the_signature_is_the_source_s() -> None:
    parameters = "const float* __restrict__ a, unsigned char* const b, int n, float (*m)[N]"
    source = f"template <int N> __global__ void f({parameters}) {{}}"
    assert cuda.compile(source, "f<3>", backend="simulator").signature == (
        "f<3>(const float* a, unsigned char* b, int n, float (*)[3])"
    )
