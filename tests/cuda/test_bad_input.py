"""Wrong calls of a kernel: each gives one clear line within seconds, and the next launch works."""

# ruff: noqa: E501 - a table of wrong input reads best with one case a line

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mlsys_labkit import cuda
from mlsys_labkit.cuda import CudaArgumentError, CudaCompileError, CudaError, CudaKernelError, CudaLaunchError

VADD = """__global__ void vadd(const float* a, const float* b, float* c, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] = a[i] + b[i];
}"""
N = 100


def arrays() -> tuple[Any, ...]:
    return np.arange(N, dtype=np.float32), np.ones(N, np.float32), np.zeros(N, np.float32)


@pytest.fixture
def vadd() -> Iterator[cuda.Kernel]:
    """Yield the kernel, and check afterwards that it still computes the right sum."""
    kernel = cuda.compile(VADD, backend="simulator")
    yield kernel
    a, b, c = arrays()
    kernel[1, 128](a, b, c, N)
    np.testing.assert_array_equal(c, a + b)


SHAPES: list[tuple[str, Any, str]] = [
    ("grid of zero", (0, 128), "grid is (0, 1, 1), and each extent is 1 or more"),
    ("negative grid", (-1, 128), "grid is (-1, 1, 1)"),
    ("block of zero", (1, 0), "block is (0, 1, 1)"),
    ("1025 threads", (1, 1025), "block is (1025, 1, 1), and its x is at most 1,024"),
    ("33 x 32 threads", (1, (33, 32)), "a block of (33, 32, 1) has 1,056 threads, and at most 1,024"),
    ("z of 65", (1, (1, 1, 65)), "its z is at most 64"),
    ("grid y of 65536", ((1, 65536), 32), "its y is at most 65,535"),
    ("grid x of 2^31", (2**31, 1), "its x is at most 2,147,483,647"),
    ("300 KB of shared memory", (1, 128, 300_000), "300,000 bytes of dynamic shared memory are more than the 232,448"),
    ("negative shared memory", (1, 128, -4), "shared_bytes is -4"),
    ("a float grid", (N / 32, 32), "grid is 3.125, and a whole number is expected; divide with //"),
    ("a float in a tuple", (1, (32.0, 1)), "block is 32.0"),
    ("a string", (1, "32"), "block is '32'"),
    ("True", (True, 32), "grid is True"),
    ("None", (None, 32), "grid is None"),
    ("four extents", (1, (1, 1, 1, 1)), "block is a number or a tuple of 1 to 3"),
    ("no extent", ((), 1), "grid is a number or a tuple of 1 to 3"),
    ("grid alone", 4, "a launch is kernel[grid, block](...)"),
    ("four parts", (1, 1, 0, 0), "a launch is kernel[grid, block](...)"),
]


@pytest.mark.parametrize(("key", "said"), [case[1:] for case in SHAPES], ids=[case[0] for case in SHAPES])
def test_launch_configurations(vadd: cuda.Kernel, key: Any, said: str) -> None:
    for launcher in (vadd, vadd.check, vadd.profile, vadd.seeded(3)):
        with pytest.raises(CudaLaunchError) as caught:
            launcher[key](*arrays(), N)  # type: ignore[index]
        assert said in str(caught.value)
        assert "\n" not in str(caught.value)
        assert isinstance(caught.value, ValueError)


def test_numpy_whole_numbers_are_whole_numbers(vadd: cuda.Kernel) -> None:
    a, b, c = arrays()
    vadd[np.int64(1), (np.int32(64), np.uint8(2))](a, b, c, N)
    vadd[np.array([1, 1]), [128]](a, b, c, N)


def replaced(number: int, value: Any) -> Callable[[], tuple[Any, ...]]:
    def make() -> tuple[Any, ...]:
        values: list[Any] = [*arrays(), N]
        values[number] = value
        return tuple(values)

    return make


def read_only() -> Any:
    array = np.zeros(N, np.float32)
    array.flags.writeable = False
    return array


ARGUMENTS: list[tuple[str, Callable[[], tuple[Any, ...]], str]] = [
    ("too few", lambda: arrays(), "vadd takes 4 arguments and got 3: vadd(const float* a, const float* b, float* c, int n)"),
    ("too many", lambda: (*arrays(), N, N), "takes 4 arguments and got 5"),
    ("float64", replaced(0, np.zeros(N)), "argument 1 (a) of vadd is an array of float64, and the kernel expects const float*; pass array.astype(np.float32)"),
    ("float64 result", replaced(2, np.zeros(N)), "argument 3 (c) of vadd is an array of float64"),
    ("int64", replaced(1, np.zeros(N, np.int64)), "an array of int64"),
    ("int32 for float", replaced(1, np.zeros(N, np.int32)), "an array of int32"),
    ("float16", replaced(1, np.zeros(N, np.float16)), "an array of float16"),
    ("a transposed matrix", replaced(0, np.zeros((10, 5), np.float32).T), "its elements are not in a row, as the kernel's pointer says; pass np.ascontiguousarray(array)"),
    ("every second element", replaced(0, np.zeros(2 * N, np.float32)[::2]), "strides (8,)"),
    ("read-only result", replaced(2, read_only()), "argument 3 (c) of vadd is read-only, and the kernel may write through float*"),
    ("None", replaced(0, None), "argument 1 (a) of vadd is None, and const float* wants a numpy array"),
    ("a list", replaced(0, [1.0, 2.0]), "is a list, and const float* wants a numpy array"),
    ("a number for a pointer", replaced(0, N), "argument 1 (a) of vadd is the number 100, and const float* wants an array; are the arguments in this order?"),
    ("a float for a pointer", replaced(0, 1.5), "is 1.5 (float)"),
    ("objects", replaced(0, np.array([None] * N)), "an array of Python objects"),
    ("strings", replaced(0, np.array(["a"] * N)), "an array of <U1"),
    ("swapped bytes", replaced(0, np.zeros(N, ">f4")), "bytes of its numbers swapped"),
    ("None for int", replaced(3, None), "argument 4 (n) of vadd is None, and the kernel expects int"),
    ("float for int", replaced(3, 100.0), "is 100.0 (float), and the kernel expects int; pass int(100.0)"),
    ("numpy float for int", replaced(3, np.float32(2)), "and the kernel expects int"),
    ("array for int", replaced(3, np.zeros(3, np.int32)), "is a ndarray of shape (3,), and the kernel expects int"),
    ("string for int", replaced(3, "100"), "is '100' (str), and the kernel expects int"),
    ("int out of range", replaced(3, 2**31), "is 2147483648, and int holds -2,147,483,648 to 2,147,483,647"),
    ("torch float64", replaced(0, torch.zeros(N, dtype=torch.float64)), "an array of float64"),
    ("torch transposed", replaced(0, torch.zeros(5, 10).T), "pass tensor.contiguous()"),
    ("torch sparse", replaced(0, torch.zeros(4, 4).to_sparse()), "sparse tensor"),
    ("torch bfloat16", replaced(0, torch.zeros(N, dtype=torch.bfloat16)), "an array of bfloat16"),
    ("torch complex", replaced(0, torch.zeros(N, dtype=torch.complex64)), "an array of complex64"),
    ("device array of another type", lambda: (cuda.zeros(N, np.float64), *arrays()[1:], N), "an array of float64"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "said"), [case[1:] for case in ARGUMENTS], ids=[case[0] for case in ARGUMENTS])
def test_arguments(vadd: cuda.Kernel, make: Callable[[], tuple[Any, ...]], said: str) -> None:
    for launcher in (vadd, vadd.check, vadd.profile):
        with pytest.raises(CudaArgumentError) as caught:
            launcher[1, 128](*make())
        assert said in str(caught.value)
        assert "\n" not in str(caught.value)
        assert isinstance(caught.value, TypeError)


def test_a_missing_shape(vadd: cuda.Kernel) -> None:
    with pytest.raises(CudaLaunchError, match=r"say how many threads: vadd\[grid, block\]"):
        vadd(*arrays(), N)
    with pytest.raises(CudaLaunchError, match=r"say how many threads"):
        vadd.check(*arrays(), N)


@pytest.mark.parametrize("wrong", [0, -1, 1.5, True, "2"])
def test_seeds_and_samples(vadd: cuda.Kernel, wrong: Any) -> None:
    with pytest.raises(CudaLaunchError, match="whole number from 1"):
        vadd.check.seeded(wrong)
    with pytest.raises(CudaLaunchError, match="whole number from 1"):
        vadd.profile.sampled(wrong)
    if wrong is not True and not isinstance(wrong, str) and wrong <= 0:
        with pytest.raises(CudaLaunchError, match="more than 0 seconds"):
            vadd.within(wrong)


def test_a_struct_of_the_wrong_size() -> None:
    kernel = cuda.compile("struct P { int a, b; }; __global__ void f(int* x, P p) { x[0] = p.a; }", backend="simulator")
    with pytest.raises(CudaArgumentError, match="is 4 bytes, and the struct P has 8 bytes"):
        kernel[1, 1](np.zeros(1, np.int32), b"1234")
    with pytest.raises(CudaArgumentError, match=r"is 7 \(int\), and the struct P has 8 bytes"):
        kernel[1, 1](np.zeros(1, np.int32), 7)


@pytest.mark.parametrize(
    ("kind", "wrong"), [("float", 1e300), ("__half", 1e6), ("bool", 2), ("unsigned", -1), ("char", 200)]
)
def test_numbers_that_do_not_fit(kind: str, wrong: float) -> None:
    kernel = cuda.compile(f"__global__ void f({kind} x) {{}}", backend="simulator")
    with pytest.raises(CudaArgumentError, match=r"holds .* to "):
        kernel[1, 1](wrong)
    kernel[1, 1](1)


def test_arguments_beyond_cuda_s_limit() -> None:
    kernel = cuda.compile("struct P { char c[40000]; }; __global__ void f(P p) {}", backend="simulator")
    with pytest.raises(CudaArgumentError, match="40,000 bytes, and CUDA allows 32,764"):
        kernel[1, 1](bytes(40_000))


SOURCES: list[tuple[str, str, str | None, str]] = [
    ("no kernel", "int main() { return 0; }", None, "the source defines no kernel"),
    ("nothing", "", None, "the source defines no kernel"),
    ("unknown name", VADD, "vsub", "no kernel called 'vsub'; it defines: vadd"),
    ("template without arguments", "template <int N> __global__ void f() {}", None, "such as f<16>"),
    ("wrong template argument", "template <int N> __global__ void f() {}", "f<float>", "f<float>: "),
    ("several", "__global__ void f() {} __global__ void g() {}", None, "the source defines 2 kernels: f, g"),
    ("syntax", "__global__ void f(float* x) {\n  x[0] = 1\n}", None, "line "),
    ("undeclared", "__global__ void f(float* x) {\n\n  x[0] = y;\n}", None, "line 3: "),
    ("undefined function", "float g(float); __global__ void f(float* x) { x[0] = g(1); }", None, "g"),
    ("missing header", '__global__ void f() {}\n#include "not_here.h"', None, "line 2: "),
    ("const", "__global__ void f(const float* x) {\n  x[0] = 1;\n}", None, "line 2: "),
    ("unclosed", "__global__ void f() {\n  if (1) {\n}", None, "line "),
    ("48 KiB", "__global__ void f(int* x) { __shared__ int s[12289]; s[threadIdx.x] = 1; __syncthreads(); x[0] = s[x[1]]; }", None, "f uses too much shared data: its __shared__ arrays have 49,156 bytes and 49,152 are allowed"),
]  # fmt: skip


@pytest.mark.parametrize(("source", "name", "said"), [case[1:] for case in SOURCES], ids=[case[0] for case in SOURCES])
@pytest.mark.parametrize("strict", [None, False], ids=["nvrtc", "g++"])
def test_sources(source: str, name: str | None, said: str, strict: bool | None) -> None:
    with pytest.raises(CudaCompileError) as caught:
        cuda.compile(source, name, strict=strict, backend="simulator")
    assert said in str(caught.value)


def test_static_and_dynamic_shared_memory_add_up() -> None:
    kernel = cuda.compile(
        "__global__ void f(int* x) { __shared__ int s[8192]; extern __shared__ int d[]; s[x[0]] = 1; __syncthreads(); x[0] = s[x[1]] + d[0]; }",
        backend="simulator",
    )  # fmt: skip
    with pytest.raises(
        CudaLaunchError, match="200,000 bytes of dynamic shared memory and 32,768 bytes of __shared__ arrays"
    ):
        kernel[1, 1, 200_000](np.zeros(4, np.int32))
    kernel[1, 1, 199_680](np.zeros(4, np.int32))


@pytest.mark.parametrize("key", ["backend", "path"])
def test_other_ways_to_call_compile(key: str, tmp_path: Path) -> None:
    if key == "backend":
        with pytest.raises(CudaError, match="backend is 'auto', 'simulator' or 'gpu'; got 'tpu'"):
            cuda.compile(VADD, backend="tpu")  # type: ignore[arg-type]
    else:
        with pytest.raises(CudaError, match="cannot be read"):
            cuda.compile(tmp_path / "nothing.cu")


def test_a_kernel_that_never_ends(vadd: cuda.Kernel) -> None:
    kernel = cuda.compile("__global__ void f(int* x) { while (*(volatile int*)x == 0) {} }", backend="simulator")
    for launcher in (kernel, kernel.profile):
        with pytest.raises(CudaKernelError) as caught:
            launcher.within(0.5)[1, 32](np.zeros(1, np.int32))  # type: ignore[union-attr]
        assert caught.value.findings[0].kind == "timeout"
    assert kernel.check.within(0.5)[1, 32](np.zeros(1, np.int32))[0].kind == "timeout"


def test_a_kernel_that_writes_nowhere(vadd: cuda.Kernel) -> None:
    with pytest.raises(CudaKernelError) as caught:
        cuda.compile("__global__ void f(int* x) { x[1 << 20] = 1; }", backend="simulator")[1, 1](np.zeros(1, np.int32))
    (finding,) = caught.value.findings
    assert (finding.kind, finding.line, finding.thread) == ("illegal_address", 1, (0, 0, 0))


def test_a_null_pointer(vadd: cuda.Kernel) -> None:
    with pytest.raises(CudaKernelError):
        vadd[1, 128](0, *arrays()[1:], N)


def test_an_assertion(vadd: cuda.Kernel) -> None:
    kernel = cuda.compile(
        "#include <cassert>\n__global__ void f(int* x) {\n  assert(x[threadIdx.x] == 0);\n}", backend="simulator"
    )
    x = np.zeros(64, np.int32)
    kernel[1, 64](x)
    x[40] = 1
    with pytest.raises(CudaKernelError) as caught:
        kernel[1, 64](x)
    assert (caught.value.findings[0].kind, caught.value.findings[0].line) == ("assertion", 3)
    assert caught.value.findings[0].thread == (40, 0, 0)


def test_a_100_gb_printf(vadd: cuda.Kernel, capsys: pytest.CaptureFixture[str]) -> None:
    kernel = cuda.compile(
        '__global__ void f() { for (int i = 0; i < 1000000; ++i) printf("%0100d\\n", i); }', backend="simulator"
    )
    with pytest.raises(CudaKernelError) as caught:
        kernel.within(1)[1000, 1]()
    assert caught.value.findings[0].kind == "timeout"
    said = capsys.readouterr().out
    assert said.startswith("0" * 100)
    assert "the kernel printed" in said[-200:]
    assert len(said) < 2_000_000


def test_exit_and_abort(vadd: cuda.Kernel) -> None:
    for call in ("exit(3)", "abort()", "*(volatile int*)0 = 1"):
        kernel = cuda.compile(f"__global__ void f() {{ {call}; }}", backend="simulator")
        with pytest.raises(CudaError):
            kernel[1, 1]()


def test_a_failed_launch_leaves_the_arrays_alone(vadd: cuda.Kernel) -> None:
    kernel = cuda.compile("__global__ void f(int* x) { x[0] = 7; x[1 << 20] = 1; }", backend="simulator")
    x = np.zeros(1, np.int32)
    with pytest.raises(CudaKernelError):
        kernel[1, 1](x)
    assert x[0] in (0, 7)
