"""Graded kernels: every trick that could keep an access from being counted is refused, ordinary CUDA C++ is not."""

# ruff: noqa: E501 - a table of forgeries reads best with one a line

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from mlsys_labkit import cuda
from mlsys_labkit.cuda.source.graded_rules import violations
from mlsys_labkit.cuda.source.source import Source

KERNEL = "__global__ void k(float* x, int n) {{ {0} }}"
BODY = "int i = threadIdx.x; if (i < n) x[i] = 2 * x[i];"

# name, source, line that is blamed
FORGERIES: list[tuple[str, str, int]] = [
    ("gnu attribute", '__attribute__((no_sanitize("thread")))\n__global__ void k(float* x, int n) { x[0] = n; }', 1),
    ("attribute without underscores", "__attribute((noinline)) __global__ void k(float* x, int n) {}", 1),
    ("standard attribute", '[[gnu::no_sanitize("thread")]] __global__ void k(float* x, int n) {}', 1),
    ("attribute with using", "[[using gnu: noipa]] __global__ void k(float* x, int n) {}", 1),
    ("attribute over two tokens", "[ [gnu::noipa] ] __global__ void k(float* x, int n) {}", 1),
    ("optimize pragma", '#pragma GCC optimize("no-tree-vrp")\n' + KERNEL.format(BODY), 1),
    ("pragma push_options", "#pragma GCC push_options\n" + KERNEL.format(BODY), 1),
    ("spaced pragma", "  #   pragma   omp simd\n" + KERNEL.format(BODY), 1),
    ("pragma operator", KERNEL.format('_Pragma("GCC optimize(0)") x[0] = 1;'), 1),
    ("pragma in a macro", '#define GO _Pragma("GCC unroll 4")\n' + KERNEL.format(BODY), 1),
    ("assembly", KERNEL.format('\n asm volatile("movl $1, (%0)" :: "r"(x));'), 2),
    ("assembly, reserved spelling", KERNEL.format('__asm__("nop");'), 1),
    ("assembly at file scope", 'asm(".globl __tsan_write4");\n' + KERNEL.format(BODY), 1),
    ("assembly label", 'void other(float*) asm("memcpy");\n' + KERNEL.format(BODY), 1),
    ("host header", "#include <sys/mman.h>\n" + KERNEL.format(BODY), 1),
    ("vector intrinsics header", "#include <immintrin.h>\n" + KERNEL.format(BODY), 1),
    ("vector intrinsic", KERNEL.format("_mm_storeu_ps(x, v);"), 1),
    ("threads header", "#include <thread>\n" + KERNEL.format(BODY), 1),
    ("printf that stores", KERNEL.format('printf("%n", (int*)x);'), 1),
    ("printf that stores one byte", KERNEL.format('\n printf("%-8d%hhn", 1, (char*)x);'), 2),
    ("printf that stores, in a macro", '#define FORM "%5$n"\n' + KERNEL.format(BODY), 1),
    ("own file", '#include "/tmp/helper.h"\n' + KERNEL.format(BODY), 1),
    ("header by macro", "#define WHERE <unistd.h>\n#include WHERE\n" + KERNEL.format(BODY), 2),
    ("include_next", "#include_next <math.h>\n" + KERNEL.format(BODY), 1),
    ("import", "#import <math.h>\n" + KERNEL.format(BODY), 1),
    ("continued name", KERNEL.format("__attri\\\nbute__((noipa)) int y; x[0] = y;"), 1),
    ("continued comment", "// nothing here \\\n__attribute__((noipa))\n" + KERNEL.format(BODY), 1),
    ("continued directive word", "#prag\\\nma GCC optimize(0)\n" + KERNEL.format(BODY), 1),
    ("pasted tokens", "#define GLUE(a, b) a##b\nGLUE(__attri, bute__)((noipa)) " + KERNEL.format(BODY), 1),
    ("pasted with a digraph", "#define GLUE(a, b) a%:%:b\n" + KERNEL.format(BODY), 1),
    ("digraph directive", '%:pragma GCC optimize("O0")\n' + KERNEL.format(BODY), 1),
    ("digraph brackets", "<:<:gnu::noipa:>:> " + KERNEL.format(BODY), 1),
    ("trigraph", "??=pragma GCC optimize(0)\n" + KERNEL.format(BODY), 1),
    ("universal character name", KERNEL.format("\\u005f_tsan_func_entry(x);"), 1),
    ("line directive", '#line 1 "lk/atomics.h"\n' + KERNEL.format(BODY), 1),
    ("line directive without its name", '# 1 "lk/atomics.h" 1 3\n' + KERNEL.format(BODY), 1),
    ("macro that is an attribute", "#define quick __attribute__((noipa))\n" + KERNEL.format(BODY), 1),
    ("CUDA's word redefined", "#define __shared__\n" + KERNEL.format(BODY), 1),
    ("CUDA's word undefined", "#undef __global__\n" + KERNEL.format(BODY), 1),
    ("which build is it", "#ifdef __SANITIZE_THREAD__\n#endif\n" + KERNEL.format(BODY), 1),
    ("which machine is it", "#if defined(__AVX2__)\n#endif\n" + KERNEL.format(BODY), 1),
    ("is it the simulator", "#ifndef __MLSYS_LABKIT__\n#endif\n" + KERNEL.format(BODY), 1),
    ("has_attribute", "#if __has_attribute(noipa)\n#endif\n" + KERNEL.format(BODY), 1),
    ("simulator's function", KERNEL.format("lk_read(x, 0);"), 1),
    ("simulator's namespace", KERNEL.format("if constexpr (lk::recording) x[0] = 1;"), 1),
    ("simulator's macro", "LK_UNRECORDED " + KERNEL.format(BODY), 1),
    ("own hook", "void __tsan_write4(void*) {}\n" + KERNEL.format(BODY), 1),
    ("own hook, C linkage", 'extern "C" void __tsan_read4(void* p) {}\n' + KERNEL.format(BODY), 1),
    ("own coverage hook", "void __sanitizer_cov_trace_pc() {}\n" + KERNEL.format(BODY), 1),
    ("declared elsewhere", 'extern "C" long syscall(long, ...);\n' + KERNEL.format(BODY), 1),
    ("block of declarations", 'extern "C" { int puts(const char*); }\n' + KERNEL.format(BODY), 1),
    ("variable elsewhere", "extern float counters[];\n" + KERNEL.format(BODY), 1),
    ("compiler's store", KERNEL.format("__builtin_memset(x, 0, 4 * n);"), 1),
    ("compiler's atomics", KERNEL.format("__sync_fetch_and_add((int*)x, 1);"), 1),
    ("compiler's atomics, new", KERNEL.format("__atomic_store_n((int*)x, 1, 0);"), 1),
    ("thread-local variable", "thread_local float tile[32];\n" + KERNEL.format("tile[0] = x[0];"), 1),
    ("a clock", KERNEL.format("long long t = clock64(); x[0] = t;"), 1),
    ("strings, which copy unseen", KERNEL.format("char c[4]; std::char_traits<char>::copy(c, (const char*)x, 4); x[0] = c[0];"), 1),
    ("namespace of the library", "namespace cooperative_groups { inline int f() { return 1; } }\n" + KERNEL.format(BODY), 1),
    ("raw string", KERNEL.format('const char* s = R"(" ; asm("nop"); const char* t = ")"; x[0] = s[0];'), 1),
    ("comment in a raw string", KERNEL.format('const char* s = R"x(/*)x"; asm("nop"); /*)x"*/ x[0] = 1;'), 1),
    ("digit separator as a quote", KERNEL.format("int y = 1'0; asm(\"nop\"); int z = 1'0; x[0] = y + z;"), 1),
    ("computed goto", KERNEL.format("static void* const at[] = {&&a, &&b}; goto *at[n & 1]; a: x[0] = 1; b: x[1] = 2;"), 1),
    ("goto by an integer", KERNEL.format("unsigned long at = n;\n goto *(void*)at; a: x[0] = 1;"), 2),
    ("carriage return ends a comment", "// quiet\rasm(\"nop\");\n" + KERNEL.format(BODY), 1),
]  # fmt: skip

# refused only when the compiler's work is looked at
COMPILED: list[tuple[str, str, str]] = [
    ("system call", "#include <cstdio>\n" + KERNEL.format('FILE* f = fopen("/proc/self/maps", "r"); x[0] = f != nullptr;'), "fopen"),
    ("library function that stores", KERNEL.format('strcpy((char*)x, (const char*)(x + n));'), "strcpy"),
    ("wide copy", KERNEL.format("wmemcpy((wchar_t*)x, (wchar_t*)(x + n), n);"), "wmemcpy"),
    ("code that runs at load", "struct A { int y; A() { y = printf(\"loaded\"); } };\nA a;\n" + KERNEL.format("x[0] = a.y;"), "initial value"),
    ("inline variable that runs at load", "__device__ float f(float y) { volatile float z = y; return sqrtf(z); }\ninline float a = f(3);\n" + KERNEL.format("x[0] = a;"), "initial value"),
    ("a guarded static, whose end runs at exit", "struct A { float y; A(float z) : y(z) {} ~A() { y = 0; } };\n" + KERNEL.format("static A a(x[0]); x[0] = a.y;"), "guard"),
    ("code that runs at exit", KERNEL.format("quick_exit(0);"), "quick_exit"),
    ("a function found by its distance", "#include <cstdio>\n" + KERNEL.format("typedef void (*F)(void*, void*, long); ((F)((long)&printf - n))(x, x + n, 64);"), "through a pointer"),
    ("a function's address", "#include <cstdio>\n" + KERNEL.format("x[0] = (float)((unsigned long)&printf >> n);"), "lk_printf: a graded kernel takes no address"),
    ("its own function's address", "__device__ __noinline__ float f(float a) { return a * 2; }\n" + KERNEL.format("x[0] = (float)((unsigned long)&f >> n);"), "f(float): a graded kernel takes no address"),
    ("an integer that is called", KERNEL.format("unsigned long at = *(unsigned long*)x; ((void (*)(float*))at)(x);"), "through a pointer"),
    ("a table of functions", "__device__ float f(float a) { return a; }\n__device__ float g(float a) { return a + 1; }\ntypedef float (*F)(float);\n__constant__ F table[] = {f, g};\n" + KERNEL.format("x[0] = table[n & 1](x[1]);"), "through a pointer"),
    ("a pointer to a member", "struct A { float v; __device__ __noinline__ float f() { return v; } __device__ __noinline__ float g() { return v + 1; } };\n" + KERNEL.format("A a{x[0]}; float (A::*m)() = n > 2 ? &A::f : &A::g; x[1] = (a.*m)();"), "through a pointer"),
    ("one of two library functions", KERNEL.format("float (*m)(float) = n > 2 ? &sinf : &cosf; x[0] = m(x[1]);"), "sinf: a graded kernel takes no address"),
    ("a virtual function", "struct A { virtual __device__ float f() { return 1; } };\n" + KERNEL.format("x[0] = ((A*)x)->f();"), "through a pointer"),
    ("address of a label", KERNEL.format("a: x[0] = (float)((unsigned long)&&a >> n);"), "takes no address of a label"),
    ("a table of labels", KERNEL.format("static void* const at[] = {&&a, &&b}; a: x[0] = (float)(unsigned long)at[n & 1]; b: x[1] = 1;").replace("{&&", "{ (void*)&&"), "takes no address of a label"),
    ("a stack whose end is kept in memory", KERNEL.format("int m = x[0]; alignas(64) float b[16]; float v[m]; for (int j = 0; j < 16; ++j) b[j] = x[j]; for (int j = 0; j < m; ++j) v[j] = x[j]; x[0] = b[n & 15] + v[m - n];"), "array of variable size"),
    ("environment", KERNEL.format('x[0] = getenv("HOME") != nullptr;'), "getenv"),
]  # fmt: skip


@pytest.mark.parametrize(("source", "line"), [case[1:] for case in FORGERIES], ids=[case[0] for case in FORGERIES])
def test_a_forgery_is_refused_where_it_stands(source: str, line: int) -> None:
    found = violations(Source(source))
    assert found
    assert found[0].line == line
    with pytest.raises(cuda.CudaCompileError, match="graded") as caught:
        cuda.compile(source, "k", graded=True, backend="simulator")
    assert caught.value.diagnostics[0].line == line


@pytest.mark.parametrize(("source", "said"), [case[1:] for case in COMPILED], ids=[case[0] for case in COMPILED])
def test_a_forgery_is_refused_by_what_it_compiles_to(source: str, said: str) -> None:
    assert not violations(Source(source))
    with pytest.raises(cuda.CudaCompileError, match="graded") as caught:
        cuda.compile(source, "k", graded=True, backend="simulator")
    assert said in str(caught.value)
    # what is refused above is C++ that runs: without the rule it would have been a kernel
    assert cuda.compile(source, "k", backend="simulator").name == "k"


ORDINARY = r"""
#include <cuda_runtime.h>
#include <cuda_fp16.h>
#include <cmath>
#define TILE 8
#define INDEX(row, column, width) ((row) * (width) + \
                                   (column))
constexpr int kWarp = 32;  // doesn't matter: "quoted"
struct __align__(8) Pair { float value; int index; };
template <typename T> __device__ __forceinline__ T larger(T a, T b) { return a > b ? a : b; }
namespace tools { [[nodiscard]] __device__ __noinline__ float half_of(float x) { return x / 2; } }
extern "C" __global__ void __launch_bounds__(64) k(const float* __restrict__ x, float* y, Pair* pairs, int n)
{
    __shared__ float tile[TILE][TILE + 1];
    extern __shared__ float room[];
    const int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % kWarp;
    float sum = 0.0f, corners[4] = {};
    if (i < n) {
        tile[threadIdx.x / TILE][threadIdx.x % TILE] = x[i];
        room[threadIdx.x] = __ldg(x + i);
    }
    __syncthreads();
    #pragma unroll
    for (int j = 0; j < 4; ++j) corners[j] = fmaxf(corners[j], expf(-x[j]) + sinf(x[j]) * cosf(x[j]) + __fdividef(1.0f, 3.0f));
    #pragma unroll 2
    for (int j = 0; j < n; ++j) sum += corners[j % 4] + larger(room[j % 64], tools::half_of(rsqrtf(x[j] + 1.0f)));
    sum += __shfl_down_sync(0xffffffff, sum, 16) + __popc(__ballot_sync(0xffffffff, lane < 3));
    if (i < n) { pairs[i] = Pair{sum, i}; y[i] = __half2float(__float2half(sum)); }
    if (threadIdx.x == 0) atomicAdd(&y[0], 1.0f);
    if (i == 0) printf("n is %d, 100%%n\n", n);
    assert(n > 0);
}
"""


def test_an_ordinary_kernel_is_not_refused() -> None:
    kernel = cuda.compile(ORDINARY, graded=True, backend="simulator")
    x, y, pairs = np.ones(64, np.float32), np.zeros(64, np.float32), np.zeros((64, 2), np.float32)
    kernel[1, 64, 256](x, y, pairs, 64)
    assert kernel.profile[1, 64, 256](x, y, pairs, 64).global_load_requests > 0
    assert np.isfinite(y).all()


def test_a_switch_and_functions_known_where_they_are_called_are_ordinary() -> None:
    cases = " ".join(f"case {at}: x[{at}] = {at * at + 1}; break;" for at in range(12))
    body = f"switch (n) {{{{ {cases} }}}} float (*m)(float) = f; x[12] = apply([](float a) {{{{ return a + 1; }}}}, m(x[12]));"
    given = "__device__ float f(float a) { return a * 2; }\n"
    given += "template <class F> __device__ float apply(F&& g, float a) { return g(a); }\n"
    kernel = cuda.compile(
        given + KERNEL.format(body.replace("{{", "{").replace("}}", "}")), "k", graded=True, backend="simulator"
    )
    x = np.ones(13, np.float32)
    kernel[1, 1](x, 7)
    assert (x[7], x[12]) == (50, 3)
    assert kernel.profile[1, 1](x, 5).global_store_requests == 2


def test_parameters_and_arrays_may_be_aligned_to_more_than_16_bytes() -> None:
    source = """struct alignas(32) Eight { float v[8]; };
    struct alignas(64) Map { unsigned long v[16]; };
    __device__ __noinline__ float picked(Eight from, int at) { return from.v[at]; }
    __global__ void k(Eight all, const __grid_constant__ Map map, const float* x, float* y)
    {
        alignas(64) float own[8];
        for (int j = 0; j < 8; ++j) own[j] = x[j] + map.v[j];
        Eight copy = all;
        y[threadIdx.x] = own[threadIdx.x] + picked(copy, threadIdx.x);
    }"""
    kernel = cuda.compile(source, "k", graded=True, backend="simulator")
    x, y = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
    for launch in (kernel, kernel.profile):
        launch[1, 8](np.full(8, 10, np.float32), np.arange(16, dtype=np.uint64), x, y)
        assert y.tolist() == [10 + 2 * j for j in range(8)]
        y[:] = 0


def test_both_builds_are_looked_at() -> None:
    """The instrumented build is compiled at the first profile, under the same rules."""
    source = KERNEL.format("x[0] = sqrtf(x[1]); for (int j = 0; j < n; ++j) x[j] = 0;")
    kernel = cuda.compile(source, graded=True, backend="simulator")
    assert kernel.profile[1, 1](np.ones(4, np.float32), 4).global_store_requests == 5


def test_a_copy_that_the_compiler_makes_is_counted() -> None:
    """Structs are copied by calls of gcc's own, which must not be a way around the count."""
    source = """struct Big { float v[32]; };
    __global__ void k(Big* to, const Big* from) { to[threadIdx.x] = from[threadIdx.x]; }"""
    kernel = cuda.compile(source, graded=True, backend="simulator")
    to, source_array = np.zeros(64, np.float32), np.arange(64, dtype=np.float32)
    profile = kernel.profile[1, 2](to, source_array)
    assert (profile.bytes_read, profile.bytes_written) == (256, 256)
    np.testing.assert_array_equal(to, source_array)


def test_names_that_only_a_macro_spells_are_found() -> None:
    """The text is checked again after macros are expanded."""
    expanded = subprocess.run(
        ["g++", "-E", "-P", "-x", "c++", "-"],
        input="#define A(x, y) x##y\nA(__attri, bute__)((noipa)) void f();",
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert violations(Source(expanded))


def test_another_thread_s_local_memory_is_no_cache() -> None:
    """On a GPU no other thread can read it; in the simulator it could be read without being counted."""
    source = """__global__ void k(const float* x, float* y)
    {
        __shared__ const float* shared;
        float mine[32];
        for (int j = 0; j < 32; ++j) mine[j] = x[j];
        if (threadIdx.x == 0) shared = mine;
        __syncthreads();
        y[threadIdx.x] = shared[threadIdx.x];
    }"""
    kernel = cuda.compile(source, graded=True, backend="simulator")
    x, y = np.ones(32, np.float32), np.zeros(32, np.float32)
    with pytest.raises(cuda.CudaKernelError) as caught:
        kernel.profile[1, 32](x, y)
    assert (caught.value.findings[0].kind, caught.value.findings[0].line) == ("out_of_bounds", 8)
    (finding,) = kernel.check[1, 32](x, y)
    assert (finding.line, finding.array, finding.offset) == (8, "", None)
    assert "reads a local variable of another thread" in finding.message
    assert caught.value.findings[0].message == finding.message


def test_a_wild_store_while_counting_is_no_profile(tmp_path: Path) -> None:
    """A kernel that writes over the simulator's own memory is stopped before it does."""
    body = "char* p = (char*)&here; for (long j = 1; j <= n; ++j) p[-j * 4096] = 1;"
    source = "__device__ int here;\n" + KERNEL.format(body)
    kernel = cuda.compile(source, "k", graded=True, backend="simulator")
    with pytest.raises(cuda.CudaKernelError):
        kernel.profile[1, 1](np.ones(4, np.float32), 1)
