"""Headers of kernels: in any order, with any macros before them, whole loads, and nothing that nvcc refuses."""

# ruff: noqa: E501

from __future__ import annotations

import functools
import random

import numpy as np
import pytest

from mlsys_labkit import cuda
from mlsys_labkit.cuda.cache import Cache
from mlsys_labkit.cuda.kernel.gcc import compiler
from mlsys_labkit.cuda.kernel.gcc.flags import INCLUDES, Build, compile_flags
from mlsys_labkit.cuda.kernel.gcc.headers import precompiled
from mlsys_labkit.cuda.kernel.gcc.toolchain import find_toolchain
from mlsys_labkit.cuda.source.tokens import tokenize

PATHS = {
    str(path.relative_to(folder)): path
    for pattern in ("*.h", "cooperative_groups/*.h", "cuda/*", "cuda/std/*")
    for folder in INCLUDES
    for path in folder.glob(pattern)
    if path.is_file() and not path.name.startswith(("helper_", "cublas", "nvTools"))
}  # fmt: skip
CUDA = sorted(PATHS)
STANDARD = """
algorithm array assert.h atomic bitset cassert cctype cfloat chrono climits cmath complex cstdarg cstddef cstdint cstdio
cstdlib cstring ctime deque exception fstream functional future initializer_list iomanip iostream iterator limits list
map math.h memory mutex new numeric optional queue random set sstream stack stdexcept stdint.h stdio.h stdlib.h string
string.h thread time.h tuple type_traits unordered_map unordered_set utility variant vector
""".split()  # noqa: SIM905
KEYWORDS = """
alignas alignof auto bool break case catch char class const const_cast constexpr continue decltype default defined delete do
double else enum explicit extern false float for friend goto if inline int long mutable namespace new noexcept nullptr
operator override private protected public reinterpret_cast return short signed sizeof static static_assert static_cast
struct switch template this thread_local throw true try typedef typename union unsigned using virtual void volatile while
""".split()  # noqa: SIM905
BODY = '__global__ void f(float* a) { a[0] = fmaxf(a[1], 1.0f); printf("%d", threadIdx.x); assert(a[0] > 0); }\n'


def compiles(source: str) -> cuda.Kernel:
    return cuda.compile(source, backend="simulator", strict=False)


def run(source: str, *arrays: np.ndarray, threads: int = 32) -> None:
    compiles(source)[1, threads](*arrays)


# Those that only lead on, to the prelude or to a standard header, need no compilation of their own.
FORWARDING = [name for name in CUDA if name.startswith("cuda/std/") or '"lk/prelude.h"' in PATHS[name].read_text()]


@pytest.mark.parametrize("header", [name for name in CUDA if name not in FORWARDING])
def test_each_header_stands_alone(header):
    compiles(f"#include <{header}>\n{BODY}")


def test_forwarding_headers():
    assert len(FORWARDING) > 30
    compiles("".join(f"#include <{name}>\n" for name in FORWARDING) + BODY)


@pytest.mark.parametrize("seed", range(3))
def test_headers_in_any_order(seed):
    names = [*CUDA, *STANDARD]
    random.Random(seed).shuffle(names)
    compiles("".join(f"#include <{name}>\n" for name in names) + BODY)


@functools.cache
def macros() -> str:
    """Define every plain word of our headers: names of parameters, members and functions, even documented ones."""
    texts = (path.read_text() for folder in INCLUDES for path in folder.rglob("*") if path.is_file())
    names = {token.text for text in texts for token in tokenize(text) if token.kind == "identifier"}
    words = {name for name in names if not name.startswith(("_", "lk", "LK"))} - set(KEYWORDS)
    assert {"T", "Value", "value", "size", "TileThreads", "Number"} <= words
    return "".join(f"#define {word} 16\n" for word in [*sorted(words), "TILE", "N", "BLOCK_SIZE"])


def test_macros_of_the_source_change_no_header():
    headers = "".join(f"#include <{name}>\n" for name in CUDA)
    compiles(f"{macros()}{headers}{macros()}__global__ void _k(float* _a) {{ _a[0] = K + T; }}")


def test_macros_of_the_source_change_no_header_of_a_file_beside_it(tmp_path):
    (tmp_path / "tools.h").write_text("#pragma once\n#define Value 16\n#include <cooperative_groups.h>\n")
    source = tmp_path / "kernel.cu"
    source.write_text('#include "tools.h"\n__global__ void f(int* a) { a[0] = Value; }')
    out = np.zeros(1, np.int32)
    cuda.compile(source, backend="simulator")[1, 1](out)
    assert out[0] == 16


def test_no_template_of_ours_is_made_again_at_each_compilation(tmp_path):
    (tmp_path / "unit.cpp").write_text("")
    flags = compile_flags(Build.FAST, find_toolchain())
    header = str(precompiled(Build.FAST, find_toolchain(), Cache()))
    dump = ["-fdump-tree-original=made.txt", "-S", "unit.cpp"]
    compiler.run(find_toolchain(), [*flags, "-include", header, *dump], tmp_path)
    made = [line for line in (tmp_path / "made.txt").read_text().splitlines() if line.startswith(";; Function")]
    assert made  # those of the standard library
    assert [line for line in made if "lk::" in line or "riemann_zeta" in line] == []


def test_special_functions_of_the_standard_library_are_there():
    out = np.zeros(4)
    run(
        "#include <cmath>\nusing std::beta;\n__global__ void f(double* a) { a[0] = std::riemann_zeta(2.0);"
        " a[1] = beta(2.0, 3.0); a[2] = std::legendre(2, 0.5); a[3] = __cpp_lib_math_special_functions; }",
        out,
        threads=1,
    )
    np.testing.assert_allclose(out, [np.pi**2 / 6, 1 / 12, -0.125, 201603])


def test_macros_of_a_program_change_no_header(tmp_path):
    names = [*CUDA, *(f"thrust/{path.name}" for path in (INCLUDES[1] / "thrust").glob("*.h"))]
    headers = "".join(f"#include <{name}>\n" for name in names)
    (tmp_path / "sizes.h").write_text(f"#pragma once\n{macros()}")
    program = tmp_path / "program.cu"
    program.write_text(f'#include "sizes.h"\n{headers}int main() {{ return K + T; }}\n')
    assert cuda.run_program(program).returncode == 32


def test_builtin_names_can_be_used_for_other_things():
    compiles(
        "#include <cstdio>\n"
        "struct S { int blockIdx, threadIdx, printf, clock, assertion; int min(int x) { return x; } };\n"
        "int host() { dim3 blockDim(16, 16), gridDim(4); return blockDim.x * gridDim.x; }\n"
        "__global__ void f(int* a) { S s; s.blockIdx = 1; s.printf = 2; a[0] = s.blockIdx + s.printf + s.min(3); }"
    )


def test_builtin_variables_are_numbers():
    out = np.zeros((64, 4), np.int32)
    cuda.compile(
        'template <class T> __device__ int twice(T x) { static_assert(sizeof(T) == 4, ""); return 2 * x; }\n'
        "__global__ void f(int4* out) { auto t = threadIdx.x; t += 1; const dim3 b = blockDim; uint3 i = blockIdx;"
        " out[blockIdx.x * blockDim.x + threadIdx.x] = make_int4(t, b.x, twice(threadIdx.x), i.x + gridDim.x * warpSize); }",
        backend="simulator",
    )[2, 32](out.reshape(-1))
    thread = np.arange(64) % 32
    expected = np.stack([thread + 1, np.full(64, 32), 2 * thread, np.arange(64) // 32 + 64], axis=1)
    np.testing.assert_array_equal(out, expected)


def test_printf_and_std_printf_take_builtin_variables(capfd):
    run(
        '__global__ void f() { if (threadIdx.x == 7) { printf("%d\\n", threadIdx.x); std::printf("%u!\\n", blockDim.x); } }'
    )
    assert capfd.readouterr().out == "7\n32!\n"


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("__global__ void f(float3* a) { a[0] = a[1] + a[2]; }", r"operator\+"),
        ("__global__ void f(float4* a) { a[0] *= 2.0f; }", r"operator\*="),
        ("__global__ void f(half* a) {}", "half is not declared"),
        ("#include <cuda_fp16.h>\n__global__ void f(half* a) { a[0] = a[1] * 2.0f; }", r"ambiguous overload for 'operator\*'"),
        ("__global__ void f(float* a) { a[0] = hexp(a[1]); }", "hexp is not declared"),
        ("__global__ void f(size_t* a) { atomicAdd(a, 1); }", "atomicAdd takes the address of int, unsigned, unsigned long"),
        ("__global__ void f(float* a) { atomicMax(a, 1.0f); }", "atomicMax takes the address of int"),
        ("__global__ void f(const int* a) { atomicAdd(a, 1); }", "atomicAdd takes the address of"),
        ("__global__ void f(float4* a) { a[0] = __shfl_sync(~0u, a[1], 0); }", "__shfl_sync"),
        ("__global__ void f() { threadIdx.x = 3; }", "read-only"),
        ("__global__ void f(int* a) { __shared__ int n = 0; a[0] = n; }", "a __shared__ variable has no initializer"),
        ("__global__ void f(float* a, cudaTextureObject_t t) { a[0] = tex2D<float>(t, 0, 0); }", "^line 1: textures and surfaces are for whole programs"),
        ('__global__ void f() { asm volatile("tcgen05.fence;"); }', "^line 1: inline PTX tcgen05.fence: left out"),
        ("__global__ void f();\n__global__ void g() { f<<<1, 1>>>(); }\n__global__ void f() {}", "launched from Python"),
    ],
)  # fmt: skip
def test_what_is_refused(source, says):
    with pytest.raises(cuda.CudaCompileError, match=says) as caught:
        cuda.compile(source, "g" if "void g" in source else "f", backend="simulator", strict=False)
    assert len(caught.value.diagnostics) <= 3


def test_special_registers():
    out = np.zeros((96, 6), np.uint32)
    names = ["laneid", "warpid", "tid.x", "ntid.x", "lanemask_lt", "lanemask_ge"]
    reads = "".join(
        f'asm volatile("mov.u32 %0, %%{name};" : "=r"(r)); out[threadIdx.x * 6 + {i}] = r;'
        for i, name in enumerate(names)
    )
    run("__global__ void f(unsigned* out) { unsigned r; " + reads + " }", out.reshape(-1), threads=96)
    thread = np.arange(96, dtype=np.uint64)
    lane = thread % 32
    below = (1 << lane) - 1
    expected = [lane, thread // 32, thread, np.full(96, 96), below, 0xFFFFFFFF - below]
    np.testing.assert_array_equal(out, np.stack(expected, axis=1).astype(np.uint32))


WHOLE = [
    ("float4", "{1} = {0};", 16), ("float2", "{1} = {0};", 8), ("int4", "int4 v = {0}; v.x += 1; {1} = v;", 16),
    ("double2", "double2 v = {0}; {1} = make_double2(v.y, v.x);", 16), ("uchar4", "{1} = {0};", 4),
    ("char2", "char2 v = {0}; {1} = v;", 2), ("ushort4", "{1} = {0};", 8), ("longlong2", "{1} = {0};", 16),
    ("float4", "float4 v = __ldg(&{0}); {1} = make_float4(v.w, v.z, v.y, 0.0f);", 16),
    ("float4", "union {{ float4 v; float f[4]; }} u; u.v = {0}; u.f[2] += 1; {1} = u.v;", 16),
    ("float4", "float4 v = {0}; {1} = float4{{v.x, 1.0f, v.y, v.w}};", 16),
    ("float4", "float4 v = {0}; {1} = {{v.x, 1.0f, v.y, v.w}};", 16),
    ("float2", "float2 v = {0}; *(out + i) = {{v.y, v.x}};", 8),
    ("int2", "int2 v = {0}; if (v.x > 3) {1} = int2{{v.y, v.x}}; else {1} = {{1, 2}};", 8),
    ("half2", "{1} = __hadd2({0}, {0});", 4), ("half2", "{1} = {0} * {0};", 4), ("half2", "half2 v = {0}; v.x = v.y; {1} = v;", 4),
    ("nv_bfloat162", "{1} = __hfma2({0}, {0}, {0});", 4),
    ("float4", "*reinterpret_cast<int4*>(&{1}) = *reinterpret_cast<const int4*>(&{0});", 16),
]  # fmt: skip


@functools.cache
def whole() -> cuda.Kernels:
    kernels = (
        f"__global__ void f{at}(const {kind}* in, {kind}* out) {{ int i = threadIdx.x; {body.format('in[i]', 'out[i]')} }}"
        for at, (kind, body, _) in enumerate(WHOLE)
    )
    source = "\n".join(["#include <cuda_fp16.h>", "#include <cuda_bf16.h>", *kernels])
    return cuda.compile_all(source, backend="simulator", strict=False)


@pytest.mark.parametrize("at", range(len(WHOLE)), ids=[f"{kind} {body}" for kind, body, _ in WHOLE])
def test_a_vector_is_loaded_and_stored_as_a_whole(at):
    _, body, size = WHOLE[at]
    text = body.format("in[i]", "out[i]")
    buffers = (np.zeros(32, np.dtype([("bytes", "u1", size)])) for _ in range(2))
    profile = whole()[f"f{at}"].profile[1, 32](*buffers)
    loads = [line for line in profile.lines if line.op == "load"]
    stores = [line for line in profile.lines if line.op == "store"]
    assert {line.bytes_per_lane for line in [*loads, *stores]} == {size}
    assert sum(line.requests for line in loads) == max(1, text.count("in[i]") if "v = " not in text else 1)
    assert sum(line.requests for line in stores) == 1


def test_a_struct_of_floats_is_loaded_by_its_members():
    # Its alignment is 4: a GPU needs a load for each member, and none for what is not used.
    kernel = compiles(
        "struct P { float x, y, z, mass; };\n"
        "__global__ void f(const P* in, float* out) { P p = in[threadIdx.x]; out[threadIdx.x] = p.x + p.z; }"
    )
    profile = kernel.profile[1, 32](np.zeros(128, np.float32), np.zeros(32, np.float32))
    assert profile.global_load_requests == 2
    assert profile.global_load_sectors == 2 * 16


@pytest.mark.parametrize("aligned", ["__align__(16)", "alignas(16)", "__attribute__((aligned(16)))"])
def test_an_aligned_struct_is_loaded_as_a_whole(aligned):
    kernel = compiles(
        f"struct {aligned} Body {{ float x, y, z, mass; __device__ float sum() const {{ return x + z; }} }};\n"
        "__global__ void f(const Body* in, Body* out) { Body p = in[threadIdx.x]; p.mass += p.sum(); Body q = {1, 2, 3, 4};"
        " out[threadIdx.x] = p.x > 0 ? p : q; }"
    )
    out = np.zeros(128, np.float32)
    profile = kernel.profile[1, 32](np.arange(128, dtype=np.float32), out)
    assert {line.bytes_per_lane for line in profile.lines if line.op} == {16}
    assert profile.global_load_requests == 1
    bodies = np.arange(128, dtype=np.float32).reshape(32, 4)
    bodies[:, 3] += bodies[:, 0] + bodies[:, 2]
    bodies[0] = [1, 2, 3, 4]
    np.testing.assert_array_equal(out.reshape(32, 4), bodies)


def test_float3_is_three_loads():
    kernel = compiles("__global__ void f(const float3* in, float3* out) { out[threadIdx.x] = in[threadIdx.x]; }")
    profile = kernel.profile[1, 32](np.zeros(96, np.float32), np.zeros(96, np.float32))
    assert profile.global_load_requests == 3
    assert profile.global_load_sectors == 3 * 12


def test_a_guarded_pair_is_not_read_by_others():
    # gcc would load both halves of a pair before it tests which one is needed: a race that is not in the source.
    kernel = compiles(
        "#include <cuda_fp16.h>\n"
        "__forceinline__ __device__ void fold(half2* const v) {\n"
        "  for (int n = 32; n > 0; n /= 2) {\n"
        "    if (threadIdx.x < n) v[threadIdx.x] = __hadd2(v[threadIdx.x], v[threadIdx.x + n]);\n"
        "    __syncthreads();\n  }\n"
        "  if (threadIdx.x < 1) v[threadIdx.x] = __hadd2(v[threadIdx.x], v[threadIdx.x + 1]);\n"
        "}\n"
        "__global__ void f(float* out) { __shared__ half2 s[64]; s[threadIdx.x] = __floats2half2_rn(1.0f, 2.0f);\n"
        "  __syncthreads(); fold(s); __syncthreads(); if (threadIdx.x == 0) out[0] = (float)s[0].x; }"
    )
    out = np.zeros(1, np.float32)
    assert kernel.check[1, 64](out) == []
    assert out[0] == 64 + 32  # s[1] held 32 before the last addition


def test_shared_arrays_of_classes_carry_nothing_else():
    kernel = compiles(
        "#include <cuda_fp16.h>\n"
        "__global__ void f(const half* in, half* out) { __shared__ half tile[8][33]; tile[threadIdx.x % 8][threadIdx.x] ="
        " in[threadIdx.x]; __syncthreads(); out[threadIdx.x] = tile[threadIdx.x % 8][threadIdx.x]; }"
    )
    profile = kernel.profile[1, 32](np.ones(32, np.float16), np.zeros(32, np.float16))
    assert (profile.shared_load_requests, profile.shared_store_requests) == (1, 1)
