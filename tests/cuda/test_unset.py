"""Variables that are read and never set: each slip is reported with its line, and no correct kernel is."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from mlsys_grading.lab import find_root
from mlsys_labkit import cuda
from mlsys_labkit.checks import expect_clean
from mlsys_labkit.checks.message import CheckError
from mlsys_labkit.cuda.source.source import Source
from mlsys_labkit.cuda.source.unset import unset_variables

# (body of a kernel, variable). Each reads what was left over; "@" marks the line of the first use.
UNSET = [
    ("float sum;\nfor (int k = 0; k < n; ++k)\n  sum += x[k];  // @\n*y = sum;", "sum"),
    ("float sum;\nfor (int k = 0; k < n; ++k)\n  sum = sum + x[k];  // @\n*y = sum;", "sum"),
    ("float m;\nfor (int k = 0; k < n; ++k)\n  m = fmaxf(m, x[k]);  // @\n*y = m;", "m"),
    ("float s;\nfor (int k = 0; k < n; ++k)\n  s = fmaf(x[k], x[k], s);  // @\n*y = s;", "s"),
    ("double a = 0, sum;\nfor (int k = 0; k < n; ++k) { a += 1; sum -= x[k]; }  // @\n*y = a + sum;", "sum"),
    ("float acc[4];\nfor (int k = 0; k < n; ++k)\n  acc[k % 4] += x[k];  // @\n*y = acc[0] + acc[1];", "acc"),
    ("float acc[4][4];\nfor (int k = 0; k < n; ++k)\n  acc[k % 4][0] += x[k];  // @\n*y = acc[1][0];", "acc"),
    (
        "float acc[2];\n#pragma unroll\nfor (int k = 0; k < 2; ++k)\n  acc[k] = acc[k] + x[k];  // @\n*y = acc[1];",
        "acc",
    ),
    ("int count;\nif (x[0] > 0) count++;  // @\n*y = count;", "count"),
    ("int count;\nif (x[0] > 0) ++count;  // @\n*y = (float)count;", "count"),
    ("unsigned int bits;\nbits |= 1u << n;  // @\n*y = bits;", "bits"),
    ("unsigned bits;\nbits <<= 1;  // @\n*y = bits;", "bits"),
    ("float4 s;\ns.x += x[0]; s.y += x[1];  // @\n*y = s.x + s.y;", "s"),
    ("float s;\n*y = s;  // @", "s"),
    ("float s;\nif (s > 1) *y = 1;  // @", "s"),
    ("float s;\ns += x[0];  // @\nfor (int o = 16; o; o /= 2) s += __shfl_down_sync(~0u, s, o);\n*y = s;", "s"),
    ("float s;\ns += x[0];  // @\natomicAdd(y, s);", "s"),
    ("__half s;\ns = __hadd(s, __float2half(x[0]));  // @\n*y = __half2float(s);", "s"),
    ("float s;\ns += twice(s);  // @\n*y = s;", "s"),
    ("{ float s; s += 1;  // @\n*y = s; }\n{ float s = 0; *y += s; }", "s"),
    ("float s;\n*y = static_cast<int>(s);  // @", "s"),
    ("float s;\n*y = static_cast<unsigned int>(s);  // @", "s"),
    ("float s;\ns += 1 & (int)x[0];  // @\n*y = a && s > 0;", "s"),
]
# Bodies of correct kernels, some of which g++ warns of, and of some in which a value might come another way.
SET = [
    "float sum = 0; sum += x[0]; *y = sum;",
    "float sum; sum = 0; sum += x[0]; *y = sum;",
    "float sum; if (n > 0) sum = x[0]; __syncthreads(); if (n > 0) *y = sum;",
    "float last; float s = 0; for (int k = 0; k < n; ++k) { if (k) s += last; last = x[k]; } *y = s;",
    "float s; for (int k = 0; k < n; ++k) if (k != 0) s += x[k]; else s = x[k]; *y = s;",
    "float m; for (int k = 0; k < n; ++k) m = k ? fmaxf(m, x[k]) : x[k]; *y = m;",
    "float a, b; a = b = 0; a += x[0]; b += a; *y = b;",
    "float acc[4] = {}; acc[0] += x[0]; *y = acc[0];",
    "float acc[4]; for (float& one : acc) one = 0; acc[0] += x[0]; *y = acc[0];",
    "float acc[4]; for (int k = 0; k < 4; ++k) acc[k] = 0; acc[n % 4] += x[0]; *y = acc[0];",
    "float acc[4]; zero(acc); acc[0] += x[0]; *y = acc[0];",
    "float acc[2][2]; zero(acc[0]); acc[0][1] += x[0]; *y = acc[0][1];",
    "float acc[4]; memset(acc, 0, sizeof(acc)); acc[0] += x[0]; *y = acc[0];",
    "float s; clear(s); s += x[0]; *y = s;",
    "float s; clear((s)); s += x[0]; *y = s;",
    "float s; ZERO(s); s += x[0]; *y = s;",
    "float total; RESET; total += x[0]; *y = total;",
    "float s; float* p = &s; *p = 0; s += x[0]; *y = s;",
    "float s; float& r = s; r = 0; s += x[0]; *y = s;",
    "float s; auto&& r{s}; r = 0; s += x[0]; *y = s;",
    "float s; auto reset = [&] { s = 0; }; reset(); s += x[0]; *y = s;",
    "float s, c; sincosf(x[0], &s, &c); *y = s + c;",
    "float4 v; reinterpret_cast<float4*>(&v)[0] = *(const float4*)x; *y = v.x;",
    "float4 v; v.x = x[0]; *y = v.x;",
    "float2 v; (v).x = x[0]; *y = v.x;",
    'unsigned lane; asm("mov.u32 %0, %laneid;" : "=r"(lane)); *y = lane;',
    "struct Pair { float a, b; __device__ float sum() { return a + b; } }; Pair p{x[0], x[1]}; *y = p.sum();",
    "float s; { float s = x[0]; *y = s; }",
    "int unused[4]; *y = sizeof(unused);",
    "int debug; debug++;",
    "float s;\n#ifdef FROM_X\ns = x[0];\n#else\ns = 0;\n#endif\ns += 1; *y = s;",
    "__shared__ float s; if (n == 0) s = 0; __syncthreads(); *y = s;",
    "extern __shared__ float t[]; t[0] += 1; *y = t[0];",
    "static __shared__ int count; atomicAdd(&count, 1); *y = count;",
    "double s = x[0]; *y = [](double s) { return s; }(s);",
    "float s; std::swap(s, y[0]); *y = s;",
    "float s; put<float>(s); s += x[0]; *y = s;",
    "float s; static_cast<float&>(s) = 0; s += x[0]; *y = s;",
]  # fmt: skip
HEAD = """#define ZERO(v) v = 0
#define RESET total = 0
__device__ float twice(float v) { return 2 * v; }
__device__ void clear(float& v) { v = 0; }
template <class T> __device__ void put(T& v) { v = 0; }
__device__ void zero(float* v) { for (int k = 0; k < 4; ++k) v[k] = 0; }
__global__ void k(const float* x, float* y, int n, bool a) {
"""


@pytest.mark.parametrize(("body", "variable"), UNSET)
def test_a_variable_that_nothing_sets_is_reported(body: str, variable: str) -> None:
    text = f"{HEAD}{body}\n}}"
    (found,) = unset_variables(Source(text))
    line = next(number for number, line in enumerate(text.split("\n"), 1) if "@" in line)
    assert (found.name, found.line, found.function) == (variable, line, "k"), body


def test_no_correct_kernel_is_reported() -> None:
    assert {body: found for body in SET if (found := unset_variables(Source(f"{HEAD}{body}\n}}")))} == {}


def test_no_kernel_of_the_corpora_and_of_the_labs_is_reported() -> None:
    here, root = Path(__file__).parent, find_root()
    texts = {path: path.read_text() for path in [*here.rglob("*.cu"), *(root / "benchmarks").glob("*.py")]}
    labs = (root / "solutions").glob("*/*.py")
    texts |= {path: re.sub(r"^# ?", "", path.read_text(), flags=re.MULTILINE) for path in labs}
    assert len(texts) > 50
    assert {path: found for path, text in texts.items() if (found := unset_variables(Source(text)))} == {}


def test_only_a_kernel_and_what_it_calls_are_reported() -> None:
    text = """__device__ float left() { float a; a += 1; return a; }
    __device__ float through() { return left(); }
    __global__ void calls(float* y) { *y = through(); }
    __global__ void other(float* y) { float b; b += 1; *y = b; }"""
    named = {kernel: [one.name for one in unset_variables(Source(text), kernel)] for kernel in ("calls", "other")}
    assert named == {"calls": ["a"], "other": ["b"]}


def test_check_reports_the_variable_and_both_lines() -> None:
    source = "__global__ void total(const float* x, float* y) {\n  float sum;\n  sum += x[threadIdx.x];\n  *y = sum;\n}"
    kernel = cuda.compile(source, backend="simulator")
    arguments = (np.ones(1, np.float32), np.zeros(1, np.float32))
    (found,) = kernel.check[1, 1](*arguments)
    assert (found.kind, found.array, found.line, found.other_line) == ("uninitialized_variable", "sum", 3, 2)
    with pytest.raises(CheckError, match=r"sum is used in total before it has a value; give it one in line 2"):
        expect_clean(kernel, (1, 1, arguments))


def test_check_of_a_program_reports_the_variable() -> None:
    kernel = "__global__ void total(float* y) {\n  float sum;\n  sum += 1;\n  *y = sum;\n}\n"
    main = "int main() { float* y; cudaMalloc(&y, 4); total<<<1, 1>>>(y); cudaDeviceSynchronize(); }"
    (found,) = cuda.run_program(kernel + main, check=True).findings
    assert (found.kind, found.line) == ("uninitialized_variable", 3)
