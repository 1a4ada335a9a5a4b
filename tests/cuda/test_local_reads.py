"""``check`` finds a local variable that a thread reads before it has set it, and correct kernels are clean."""

from __future__ import annotations

import numpy as np
import pytest

from mlsys_labkit import cuda
from mlsys_labkit.cuda.source.local_reads import local_read_edits, local_reads
from mlsys_labkit.cuda.source.source import Source

# (name, body, variable or "" for a correct kernel). 32 threads; x has 64 elements; "@" marks the line of the read.
KERNELS = [
    ("stored", "int v;\nif (t < 16) v = 1;\ny[t] = v;  // @", "v"),
    ("in_a_sum", "float v;\nif (t < 16) v = x[t];\n*(y + t) = 2 * v + 1;  // @", "v"),
    ("under_if", "float v;\nif (t < 16) v = x[t];\nif (t < 20) y[t] = v;  // @", "v"),
    ("in_a_condition", "float v;\nif (t < 16) v = x[t];\nif (v > 2) y[t] = 1;  // @", "v"),
    ("in_a_loop", "unsigned v;\nif (t < 16) v = t;\nfor (unsigned i = 0; i != 1 && v != 3; ++i) y[t] = i;  // @", "v"),
    ("as_an_index", "int v;\nif (t < 16) v = t;\nif (t < 20) y[t] = x[v & 31];  // @", "v"),
    ("added", "float v;\nif (t < 16) v = 1;\natomicAdd(y, v);  // @", "v"),
    ("member", "float2 v;\nv.x = 1;\nif (t < 16) v.y = x[t];\ny[t] = v.y;  // @", "v"),
    ("wide", "double v;\nif (t < 16) v = x[t];\ny[t] = v;  // @", "v"),
    ("of_an_array", "float v[4];\nfor (int i = 0; i < 3; ++i) v[i] = x[i];\ny[t] = v[t & 3];  // @", "v"),
    ("of_registers", "float v[2];\nv[0] = x[t];\nif (t < 16) v[1] = x[t + 1];\ny[t] = v[0] + v[1];  // @", "v"),
    ("on_one_side", "float v;\nif (t < 16) { v = x[t]; } else if (t < 24) { v = 0; }\ny[t] = v;  // @", "v"),
    ("after_no_turn", "float v;\nfor (int i = 16; i < t; ++i) v = x[i];\ny[t] = v;  // @", "v"),
    ("summed", "float v, sum = 0;\nif (t < 16) v = x[t];\nsum += 2 * v;\ny[t] = sum;  // @", "v"),
    ("negated", "double v;\nif (t < 16) v = x[t];\nfloat w = -v;\ny[t] += w;  // @", "v"),
    ("added_up", "float v;\nif (t < 16) v = 1;\nfloat w = v + 1;\natomicAdd(y, w);  // @", "v"),
    (
        "reduced",
        "float v;\nif (t < 16) v = x[t];\nfor (int o = 16; o; o /= 2) v += __shfl_down_sync(~0u, v, o);\n"
        "if (t == 0) y[0] = v;  // @",
        "v",
    ),
    ("at_the_sides", "float v;\nif (t < 16) v = x[t];\nelse v = 0;\ny[t] = v;", ""),
    ("under_one_condition", "float v;\nif (t < 16) v = x[t];\n__syncthreads();\nif (t < 16) y[t] = v;", ""),
    ("not_used", "float v;\nif (t < 16) v = x[t];\nv = 2 * v;\nfloat w = v;\nif (t < 16) y[t] = w;", ""),
    ("prefetched", "float w;\nfor (int i = 0; i < 3; ++i) {\nfloat v = i ? w : 0;\nif (!i) w = *x;\ny[t] = v;\n}", ""),
    ("in_lanes", "float v;\nif (t < 16) v = x[t];\nv += __shfl_xor_sync(~0u, v, 1);\nif (t < 16) y[t] = v;", ""),
    ("by_address", "float s, c;\nsincosf(x[t], &s, &c);\ny[t] = s + c;", ""),
    ("short_circuit", "float v;\nif (t < 16) v = x[t];\nif (t < 16 && v > 0) y[t] = v;", ""),
    ("index_of_a_template", "float v[4];\nfor (int i = 0; i < 4; ++i) if (n) v[i] = x[i];\ny[t] = v[at<1, 2>(t)];", ""),
    ("through_all", "float v[4];\nfor (int i = 0; i < 4; ++i) v[i] = x[i];\ny[t] = v[t & 3];", ""),
    ("through_its_declaration", "float s, c, *p = &s;\nsincosf(x[t], p, &c);\ny[t] = s + c;", ""),
    ("a_nan", "float v = nanf(\"\");\ny[t] = -v + x[t];", ""),
    (
        "of_many_types",
        "Bits b = {5, {1, 2}};\nint *q, m = 0;\nPair to;\nfill(&q, &b, &to, &m);\nfloat v;\nif (t < 16) v = b.few;\n"
        "if (t < 9) y[t] = v;",
        "",
    ),
    ("a_mask", "int v;\nif (t & 1) v = 0xFEFEFEFE;\nelse v = 1;\ny[t] = x[v & 7];", ""),
    ("of_a_vector", "int2 v;\nv.x = 1;\nif (t < 16) v.y = t;\ny[t] = v.y;  // @", "v"),
]  # fmt: skip
TYPES = """template <int A, int B> __device__ int at(int i) { return (A * i + B) & 3; }
struct Pair { float a, b; };
struct Bits { unsigned few : 3; Pair pair; };
__device__ void fill(int** q, Bits* c, Pair* to, int* p) {
int v;
if (to) v = 1;
q[0] = 0; q[0] = NULL; p[0] = c->few; c[0] = *c; q[0] = p + v; to[0] = c->pair; to[0] = {1, 2};
}
"""
SOURCE = TYPES + "".join(
    f"__global__ void {name}(const float* x, float* y, int n) {{\nint t = threadIdx.x;\n{body}\n}}\n"
    for name, body, _ in KERNELS
)


@pytest.mark.parametrize(("name", "body", "variable"), KERNELS, ids=[case[0] for case in KERNELS])
def test_read_of_what_a_thread_has_not_set_is_found(name: str, body: str, variable: str) -> None:
    kernel = cuda.compile_all(SOURCE, backend="simulator")[name]
    found = kernel.check[1, 32](np.ones(64, np.float32), np.zeros(64, np.float32), 32)
    lines = SOURCE.splitlines()
    first = next(number for number, line in enumerate(lines, 1) if f" {name}(" in line)
    wanted = []
    if variable:
        line = next(number for number in range(first, len(lines) + 1) if "// @" in lines[number - 1])
        wanted = [("uninitialized_variable", line, variable, first + 2)]
    assert [(one.kind, one.line, one.array, one.other_line) for one in found] == wanted, found


def test_a_variable_that_is_set_at_once_is_not_looked_at() -> None:
    source = Source("__global__ void k(float* y) { float a, b; a = 1; if (y) b = 2; y[0] = a; y[1] = b; }")
    assert [one.name for one in local_reads(source)] == ["b"]


WHOLE = "__global__ void k(float* y, int n) { float v[2], w; if (n) w = *v = 1; atomicAdd(&y[0], w); y[n] = v[n & 1];}"


def test_source_that_ends_anywhere_is_left_to_the_compiler() -> None:
    assert list(local_read_edits(Source(WHOLE)))
    for end in range(len(WHOLE)):
        for text in (WHOLE[:end], WHOLE[:end] + WHOLE[end + 1 :]):
            list(local_read_edits(Source(text)))
