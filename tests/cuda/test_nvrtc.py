"""NVIDIA's compiler without a GPU: sources that compile, PTX and SASS, and the resources of a kernel."""

from __future__ import annotations

import re
import shutil
import subprocess
import textwrap
from pathlib import Path

import pytest

from mlsys_labkit.cuda.nvidia import nvrtc, ptxas
from mlsys_labkit.cuda.nvidia.device_code import without_host_code
from mlsys_labkit.cuda.nvidia.headers import supplied_headers
from mlsys_labkit.cuda.nvidia.occupancy import LIMITS
from tests.cuda.nvrtc_helpers import NEEDS_NVRTC, ONE, TILED, complaints, resources, sass

pytestmark = [NEEDS_NVRTC, pytest.mark.usefixtures("nvrtc_cache")]


@pytest.mark.parametrize(
    "body",
    [
        "x[0] = INFINITY + NAN + M_PI + INT_MAX;",
        "x[0] = std::sqrt(x[1]) + std::isnan(x[2]) + std::abs(-1) + std::pow(2.f, 3);",
        "int8_t a = 1; int64_t b = a; size_t c = b; uint d = c; std::size_t e = d; x[e] = 0;",
        'assert(x); printf("%f", x[0]); static_assert(CHAR_BIT == 8);',
        "dim3 d(1, 2); float4 v = make_float4(1, 2, 3, 4); x[0] = v.x + d.y; cudaError_t e = cudaSuccess; x[1] = e;",
        "x[0] = max(1, 2) + clock() + __shfl_sync(~0u, x[1], 0) + atomicAdd(x, 1.f);",
    ],
)
def test_names_that_nvcc_has_without_an_include(body: str) -> None:
    assert complaints(f"__global__ void k(float* x) {{ {body} }}", "k") == []


def test_hopper_means_all_its_instructions() -> None:
    """An H100 runs wgmma, and its compiler takes it for sm_90a alone."""
    fence = '__global__ void k() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }'
    assert nvrtc.compile(fence, "k", "sm_90").arch == "sm_90"
    assert nvrtc.check(fence, "k", "sm_80")


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ("cstdio iostream cuda_runtime.h vector", ""),
        ("stdio.h stdlib.h math.h assert.h string.h algorithm chrono random", ""),
        (
            "cstdint cfloat climits",
            "uint64_t u = UINT64_MAX; std::uint8_t v = 1; x[0] = FLT_MAX + u + v;",
        ),
        ("stdint.h float.h limits.h", "uint32_t u = UINT32_MAX; x[0] = FLT_EPSILON + u + INT_MIN;"),
        (
            "type_traits limits utility",
            "static_assert(std::is_void_v<void>); x[0] = std::numeric_limits<int>::max();",
        ),
        ("cuda_fp16.h cuda_bf16.h", "half h = __float2half(x[0]); x[1] = __half2float(__hadd(h, h));"),
        ("cooperative_groups.h", "auto block = cooperative_groups::this_thread_block(); block.sync();"),
        ("cuda/barrier cstdint", "__shared__ cuda::barrier<cuda::thread_scope_block> b; x[0] = sizeof(b);"),
        ("mma.h", "nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, float> f; x[0] = f.num_elements;"),
        ("cuda_pipeline.h", "__pipeline_commit(); __pipeline_wait_prior(0);"),
    ],
)
def test_headers_in_any_company(headers: str, body: str) -> None:
    includes = "\n".join(f"#include <{name}>" for name in headers.split())
    assert complaints(f"{includes}\n__global__ void k(float* x) {{ {body} }}", "k") == []


def test_every_supplied_header_can_be_included_after_every_other() -> None:
    includes = "\n".join(f"#include <{name}>" for name in supplied_headers())
    again = "\n".join(f"#include <{name}>" for name in reversed(list(supplied_headers())))
    assert complaints(f"{includes}\n{again}\n{ONE}", "one") == []


HOST = """\
#include <vector>
#include <cstdio>
#define CHECK(call) do { cudaError_t status = call; if (status) exit(1); } while (0)
const int N = 5;
int counter = 0;
static float table[3] = {1, 2, 3};
std::vector<int> sizes{1, 2, 3};
auto twice = [](int n) { return n * 2; };
constexpr int round_up(int n, int unit) { return (n + unit - 1) / unit * unit; }
template <class T> T host_maximum(T a, T b) { return a < b ? b : a; }
struct Timer {
  float started;
  Timer() : started(0) {}
  float seconds() const { return started; }
};
struct Pair {
  int a, b;
  __host__ __device__ Pair(int x, int y) : a(x), b(y) {}
  __device__ int sum() const { return a + b; }
  void print() const { printf("%d", a); }
};
void declared(int n);
__global__ void k(float* x, Pair p) {
  __shared__ float s[round_up(N, 4)];
  s[threadIdx.x] = 1;
  x[0] = p.sum() + s[0];
}
__host__ void explicitly() { }
extern "C" void solve(float* x) {
  k<<<1, 32>>>(x, Pair{1, 2});
  CHECK(cudaDeviceSynchronize());
  // a brace } in a comment, and one in "a string }"
}
int main() { std::vector<float> v(10); solve(v.data()); return 0; }
"""


def test_host_code_beside_a_kernel_is_no_mistake() -> None:
    assert complaints(HOST, "k") == []


def test_behind_host_code_the_lines_are_the_students() -> None:
    found = complaints(HOST.replace("x[0] = p.sum()", "x[0] = p.difference()"), "k")
    assert [(line, text) for line, _, text in found] == [(26, 'class "Pair" has no member "difference"')]


def test_a_host_function_called_from_a_kernel_is_refused() -> None:
    found = complaints("int host(int n) { return n; }\n__global__ void k(int* x) {\n  x[0] = host(1);\n}", "k")
    assert [line for line, _, _ in found] == [3]


def test_taking_host_code_out_moves_nothing() -> None:
    places = [(5, 5), (14, 9), (26, 5), (33, 5)]
    cleaned = without_host_code(HOST, places)
    assert [len(line) for line in cleaned.splitlines()] == [len(line) for line in HOST.splitlines()]
    assert "__global__ void k(float* x, Pair p)" in cleaned
    assert "main" not in cleaned
    assert "counter" not in cleaned
    assert without_host_code(HOST, []) == HOST


def test_a_macro_that_makes_a_host_function_takes_no_kernel_with_it() -> None:
    source = "#define HOST(name) void name() {}\nHOST(f)\n" + ONE
    assert complaints(source, "one") == []
    assert "one" in nvrtc.compile(source, "one").symbol


def test_defines_reach_the_source() -> None:
    source = "__global__ void k(float* x) { __shared__ float s[TILE]; s[threadIdx.x] = x[0]; x[1] = s[TILE - 1]; }"
    assert [text for _, _, text in complaints(source, "k")] == ['identifier "TILE" is undefined']
    assert resources(source, "k", defines={"TILE": 128}).shared_bytes == 512


def test_headers_of_the_students_own_are_found_and_watched(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "scale.cuh").write_text(
        '#include "factor.h"\n__device__ int scale(int x) { return FACTOR * x; }'
    )
    (tmp_path / "lib" / "factor.h").write_text("#define FACTOR 3\n")
    source = '#include "lib/scale.cuh"\n__global__ void k(int* x) { x[0] = scale(5); }'
    assert [one.text for one in nvrtc.check(source, "k")] == ['cannot open source file "lib/scale.cuh"']
    assert ", 15;" in nvrtc.compile(source, "k", folder=tmp_path).ptx
    (tmp_path / "lib" / "factor.h").write_text("#define FACTOR 4\n")
    assert ", 20;" in nvrtc.compile(source, "k", folder=tmp_path).ptx
    (tmp_path / "lib" / "factor.h").write_text("#define FACTOR )\n")
    (found,) = nvrtc.check(source, "k", folder=tmp_path)
    assert (found.file, found.line) == ("lib/scale.cuh", 2)


# --- What comes out -----------------------------------------------------------------------------------------------


def test_a_template_is_compiled_for_the_instance_named() -> None:
    compiled = nvrtc.compile(TILED, "matmul<32>")
    assert compiled.symbol == "_Z6matmulILi32EEvPKfS1_Pfi"
    assert f".entry {compiled.symbol}(" in compiled.ptx
    assert ".target sm_90" in compiled.ptx
    assert compiled.cubin.startswith(b"\x7fELF")


@pytest.mark.parametrize("tile", [8, 16, 32])
def test_shared_memory_is_two_tiles_of_floats(tile: int) -> None:
    found = resources(TILED, f"matmul<{tile}>")
    assert found.shared_bytes == 2 * tile * tile * 4
    assert found.barriers == 1
    assert found.spill_bytes == 0
    assert found.occupancy((tile, tile)).warps == 64


def test_launch_bounds_cap_the_registers_and_the_rest_spills() -> None:
    """1,024 threads share 65,536 registers: 64 each. 300 values that are all needed at the end do not fit."""
    source = """
    __constant__ float table[1000];
    __global__ void __launch_bounds__(1024) heavy(float* o, const float* a, int n) {
      float r[300];
      #pragma unroll
      for (int i = 0; i < 300; ++i) r[i] = a[i * n + threadIdx.x];
      __syncthreads();
      #pragma unroll
      for (int i = 0; i < 300; ++i) o[i * n + threadIdx.x] = r[i] * r[299 - i] + table[i] + r[(n + i) % 300];
    }"""
    found = resources(source, "heavy")
    assert found.registers <= 64
    assert found.spill_store_bytes > 0
    assert found.spill_load_bytes >= found.spill_store_bytes
    assert found.stack_bytes >= 300 * 4
    assert found.constant_bytes == 4000
    assert found.occupancy(1024).blocks_per_sm == 1
    assert re.match(
        r"heavy on sm_90: \d+ registers a thread, [\d]+ bytes of spills, .* 4000 bytes of const", str(found)
    )


@pytest.mark.skipif(shutil.which("ptxas") is None, reason="needs a CUDA toolkit's ptxas as a second opinion")
def test_a_toolkit_gives_the_same_complaints(tmp_path: Path) -> None:
    """An assembler of the same PTX in another program; its version may choose other registers, and no other bytes."""
    text = nvrtc.compile(TILED, "matmul<16>", options=["--gpu-architecture=compute_90"]).ptx
    older = re.sub(r"\.version 9\.\d", ".version 9.0", text)
    (tmp_path / "k.ptx").write_text(older)
    command = ["ptxas", "-v", "-arch=sm_90", "k.ptx", "-o", "k.cubin"]
    said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stderr
    theirs, ours = ptxas.read_report(said), resources(TILED, "matmul<16>")
    (one,) = theirs.values()
    assert (one.shared_bytes, one.barriers, one.spill_store_bytes) == (ours.shared_bytes, ours.barriers, 0)
    assert abs(one.registers - ours.registers) <= 8


def test_older_reports_are_read_too() -> None:
    """The layout of CUDA 11 and 12: stack before the entry's line of registers, banks of constants behind."""
    log = textwrap.dedent("""\
        ptxas info    : 0 bytes gmem, 4000 bytes cmem[3]
        ptxas info    : Compiling entry function '_Z5heavyPf' for 'sm_80'
        ptxas info    : Function properties for _Z5heavyPf
            1200 bytes stack frame, 5028 bytes spill stores, 6388 bytes spill loads
        ptxas info    : Used 64 registers, 400 bytes smem, 372 bytes cmem[0]
        ptxas info    : Function properties for helper
            8 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
        ptxas info    : Compiling entry function 'plain' for 'sm_80'
        ptxas info    : Function properties for plain
            0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
        ptxas info    : Used 8 registers, used 2 barriers, 360 bytes cmem[0]
        """)
    heavy, plain = ptxas.read_report(log).values()
    assert (heavy.registers, heavy.stack_bytes, heavy.spill_store_bytes, heavy.spill_load_bytes) == (
        64,
        1200,
        5028,
        6388,
    )
    assert (heavy.shared_bytes, heavy.barriers) == (400, 0)
    assert (plain.registers, plain.stack_bytes, plain.barriers) == (8, 0, 2)


def test_the_right_kernel_of_several() -> None:
    source = TILED + ONE + "namespace app { __global__ void two(double* x) { __shared__ double s[32];"
    source += " s[threadIdx.x] = x[0]; __syncthreads(); x[1] = s[31 - threadIdx.x]; } }"
    assert resources(source, "app::two").shared_bytes == 256
    assert resources(source, "one").shared_bytes == 0


def test_sass_is_the_named_kernels() -> None:
    text = sass(ONE + "__global__ void other(float* x) { x[0] = __sinf(x[1]); }", "one")
    assert text.splitlines()[0] == ".text._Z3onePf:"
    assert re.search(r"\bSTG\b", text)
    assert "EXIT" in text
    assert "MUFU" not in text, "the sine is the other kernel's"
    assert "MUFU" in sass(ONE + "__global__ void other(float* x) { x[0] = __sinf(x[1]); }", "other")


def test_ptx_names_the_architecture() -> None:
    assert ".target sm_80" in nvrtc.compile(ONE, "one", "sm_80").ptx


def test_nothing_is_compiled_twice(nvrtc_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = nvrtc.compile(ONE, "one", "sm_86")
    monkeypatch.setattr(nvrtc, "_run", lambda *_: pytest.fail("compiled again"))
    assert nvrtc.compile(ONE, "one", "sm_86") == first


@pytest.mark.parametrize("name", ["all", "abs", "spaced::min"])
def test_a_kernel_may_be_called_like_one_of_cudas_functions(name: str) -> None:
    plain = name.removeprefix("spaced::")
    source = f"__global__ void {plain}(int* x) {{ x[0] = 1; }}"
    compiled = nvrtc.compile(f"namespace spaced {{ {source} }}" if plain != name else source, name)
    assert plain in compiled.symbol
    assert f".entry {compiled.symbol}(" in compiled.ptx


def test_overloads_are_ambiguous() -> None:
    source = "__global__ void k(int* x) { x[0] = 1; }\n__global__ void k(float* x) { x[0] = 1; }"
    assert 'cannot determine which instance of overloaded function "k"' in nvrtc.check(source, "k")[0].text


# --- The table of limits ------------------------------------------------------------------------------------------


def test_limits_are_those_of_the_cuda_library() -> None:
    """NVIDIA's own C++ library carries the limits of every architecture; the compiler itself compares."""
    if complaints("#include <cuda/devices>"):
        pytest.skip("needs a CUDA C++ library of CUDA 13.1 or newer, which states limits")
    fields = {
        "max_warps_per_multiprocessor": "warps_per_sm",
        "max_blocks_per_multiprocessor": "blocks_per_sm",
        "max_threads_per_block": "threads_per_block",
        "max_registers_per_multiprocessor": "registers_per_sm",
        "max_registers_per_block": "registers_per_block",
        "max_registers_per_thread": "registers_per_thread",
        "max_shared_memory_per_multiprocessor": "shared_per_sm",
        "max_shared_memory_per_block_optin": "shared_per_block",
        "reserved_shared_memory_per_block": "shared_reserved",
    }

    def asserts(wrong: int = 0) -> str:
        lines = ["#include <cuda/devices>"]
        for arch, limits in LIMITS.items():
            traits = f"cuda::arch_traits<cuda::arch_id::{arch}>()"
            lines += [
                f"static_assert({traits}.{theirs} == {getattr(limits, ours) + wrong});"
                for theirs, ours in fields.items()
            ]
        return "\n".join(lines)

    assert complaints(asserts()) == []
    assert len(complaints(asserts(wrong=1))) == 100, "where the compiler stops: each of them is compared"
