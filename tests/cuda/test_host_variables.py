"""A kernel that uses a variable of the host is refused in nvcc's words; a name of its own is none."""

from __future__ import annotations

import pytest

from mlsys_labkit import cuda
from mlsys_labkit.cuda.errors import CudaCompileError
from mlsys_labkit.cuda.source.host_variables import host_variables
from mlsys_labkit.cuda.source.source import Source
from tests.cuda.program_helpers import run

REFUSED = [
    ("int n = 5;\n__global__ void k(int* p) { *p = n; }", 2, "n"),
    ("static float table[4] = {1, 2, 3, 4};\n__global__ void k(float* p) { *p = table[0]; }", 2, "table"),
    ("namespace a { int x, *count; }\n__global__ void k() {\n  count[0]++;\n}", 3, "count"),
    ("float *d_a, *d_b;\n__device__ float f() { return d_b[1]; }\n__global__ void k(float* p) { *p = f(); }", 2, "d_b"),
]
ACCEPTED = [
    "int n;  __global__ void k(int* p, int n) { *p = n; }",
    "int n;  __global__ void k(int* p) { int a = 1, n = a; *p = n; }",
    "int n;  __global__ void k(int* p) { for (int n = 0; n < 3; ++n) *p = n; }",
    "int n;  template <int n> __global__ void k(int* p) { *p = n; }",
    "int n;  __global__ void k(int* p) { auto f = [](int n) { return n; }; *p = f(1) + int(sizeof(n)); }",
    "int x, y;  __global__ void k(int2* p) { auto [x, y] = *p; p->x = y + x; }",
    "int a[2];  __global__ void k(int* p) { double *a = (double*)p; __shared__ int b[2]; b[0] = int(a[0]); }",
    "const int n = 5;  constexpr float t[1] = {1};  __global__ void k(float* p) { *p = n * t[0]; }",
    "int __device__ n;  __constant__ float t[2];  __managed__ int m;  __global__ void k(float* p) { *p = n * t[m]; }",
    "int n;  struct P { int n; __device__ int get() { return n; } };  __global__ void k(int* p) { *p = P{1}.get(); }",
]


@pytest.mark.parametrize(("source", "line", "name"), REFUSED)
def test_the_use_is_refused_with_its_line(source: str, line: int, name: str) -> None:
    (found,) = host_variables(Source(source))
    assert (found.line, f'identifier "{name}" is undefined in device code' in found.text) == (line, True)


@pytest.mark.parametrize("source", ACCEPTED)
def test_what_is_no_such_use_passes(source: str) -> None:
    assert host_variables(Source(source)) == []


def test_kernels_and_programs_are_refused() -> None:
    source = REFUSED[0][0]
    with pytest.raises(CudaCompileError, match="line 2: identifier"):
        cuda.compile(source, "k", backend="simulator", strict=False)
    with pytest.raises(CudaCompileError, match="line 2: identifier"):
        run(source + "\nint main() { k<<<1, 1>>>(nullptr); }")
