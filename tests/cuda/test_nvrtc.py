"""NVIDIA's compiler without a GPU: its words about a student's line, PTX and SASS, and what a kernel takes."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from mlsys_labkit.cuda.errors import CompileError, CudaError
from mlsys_labkit.cuda.nvidia import libraries, nvrtc, ptxas
from mlsys_labkit.cuda.nvidia.device_code import without_host_code
from mlsys_labkit.cuda.nvidia.diagnostics import read_log
from mlsys_labkit.cuda.nvidia.headers import supplied_headers
from mlsys_labkit.cuda.nvidia.occupancy import LIMITS
from mlsys_labkit.cuda.nvidia.resources import ptx, resources, sass
from mlsys_labkit.errors import MissingExtraError

pytestmark = pytest.mark.skipif(
    not nvrtc.available(), reason="needs NVIDIA's run-time compiler; run: pip install 'mlsys-labkit[cuda]'"
)

TILED = """
template <int T> __global__ void matmul(const float* a, const float* b, float* c, int n) {
  __shared__ float tile_a[T][T], tile_b[T][T];
  int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * T + y, column = blockIdx.x * T + x;
  float sum = 0;
  for (int k = 0; k < n; k += T) {
    tile_a[y][x] = a[row * n + k + x];
    tile_b[y][x] = b[(k + y) * n + column];
    __syncthreads();
    for (int i = 0; i < T; ++i) sum += tile_a[y][i] * tile_b[i][x];
    __syncthreads();
  }
  c[row * n + column] = sum;
}
"""
ONE = "__global__ void one(float* x) { x[threadIdx.x] = 1; }\n"


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One cache for this file, empty at its start: the headers are unpacked once."""
    folder = tmp_path_factory.getbasetemp() / "nvrtc-cache"
    monkeypatch.setenv("LABKIT_CUDA_CACHE", str(folder))
    return folder


def complaints(source: str, name: str | None = None) -> list[tuple[int, int, str]]:
    return [(one.line, one.column, one.text) for one in nvrtc.check(source, name)]


# --- What CUDA says, and where ------------------------------------------------------------------------------------


def test_a_complaint_points_at_the_students_line_and_column() -> None:
    (found,) = nvrtc.check("__global__ void k(float* a) {\n\t a[0] = 1;\n  a[1] = missing;\n}", "k")
    assert (found.line, found.column) == (3, 10)
    assert found.source_line == "  a[1] = missing;"
    assert found.text == 'identifier "missing" is undefined'
    assert str(found) == 'line 3: identifier "missing" is undefined: a[1] = missing;'


@pytest.mark.parametrize(
    ("line", "column", "text"),
    [
        ("\ta[0] = y;", 9, 'identifier "y" is undefined'),  # a tab counts one, as in an editor's column
        ("a[0] = 1", 1, 'expected a ";", here or on the line above'),  # on the next line, where it is missed
        ("# a remark", None, "unrecognized preprocessing directive; a comment in C++ begins with //"),
        ("/* 中文 é */ a[0] = y;", 19, 'identifier "y" is undefined'),  # characters, not bytes
        ("a.x = 3;", 1, 'expression must have class type but it has type "float *"'),
        ("host_only();", 1, 'identifier "host_only" is undefined'),
        ("std::vector<int> v;", None, None),
        ("throw 3;", None, None),
    ],
)
def test_where_complaints_point(line: str, column: int | None, text: str | None) -> None:
    found = complaints(f"__global__ void k(float* a) {{\n{line}\n}}", "k")
    assert found
    assert all(2 <= at <= 3 for at, _, _ in found)
    if column is not None:
        assert found[0][1] == column
    if text is not None:
        assert found[0][2] == text


def test_every_complaint_is_told_in_the_order_of_the_lines() -> None:
    found = complaints("__global__ void k(float* a) {\n a[0] = u;\n a[1] = 2;\n int unused;\n a[2] = v;\n}", "k")
    assert [line for line, _, _ in found] == [2, 5]  # and no word about the unused variable: it compiles


def test_an_open_bracket_is_told_at_the_end() -> None:
    (found,) = nvrtc.check("__global__ void k(float* a) {\n  a[0] = 1;\n", "k")
    assert found.line == 3
    assert found.text == 'expected a "}"'


def test_too_much_shared_memory_is_the_assemblers_complaint() -> None:
    source = "__global__ void k(float* a) { __shared__ float s[20000]; s[threadIdx.x] = a[0]; a[1] = s[5]; }"
    (found,) = nvrtc.check(source, "k")
    assert found.line == 0
    assert "uses too much shared data (0x13880 bytes, 0xc000 max)" in found.text


def test_an_unknown_name_is_told_without_a_line() -> None:
    found = nvrtc.check(ONE, "two")
    assert found[0].line == 0
    assert 'identifier "two" is undefined' in found[0].text


def test_the_error_shows_the_first_complaints_and_carries_all() -> None:
    wrong = "\n".join(f"x[{index}] = missing{index};" for index in range(8))
    with pytest.raises(CompileError, match=r'(?s)^line 2: identifier "missing0" is undefined.*and 3 more$') as caught:
        nvrtc.compile(f"__global__ void k(float* x) {{\n{wrong}\n}}", "k")
    assert len(caught.value.diagnostics) == 8
    assert len(str(caught.value).splitlines()) == 6


def test_a_log_with_a_header_keeps_its_name() -> None:
    log = 'cuda_fp16.hpp(12): error: no instance of "f"\n    f(x);\n    ^\n\n1 error detected.\n'
    (one,) = read_log(log, "kernel.cu", ONE)
    assert (one.diagnostic.file, one.diagnostic.line, one.diagnostic.column) == ("cuda_fp16.hpp", 12, 3)


# --- What compiles ------------------------------------------------------------------------------------------------


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
def test_what_nvcc_knows_without_an_include(body: str) -> None:
    assert complaints(f"__global__ void k(float* x) {{ {body} }}", "k") == []


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
    assert resources(source, "k", "sm_90", {"TILE": 128}).shared_bytes == 512


def test_headers_of_the_students_own_are_found_and_watched(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "scale.cuh").write_text(
        '#include "factor.h"\n__device__ int scale(int x) { return FACTOR * x; }'
    )
    (tmp_path / "lib" / "factor.h").write_text("#define FACTOR 3\n")
    source = '#include "lib/scale.cuh"\n__global__ void k(int* x) { x[0] = scale(5); }'
    assert [one.text for one in nvrtc.check(source, "k")] == ['cannot open source file "lib/scale.cuh"']
    assert ", 15;" in ptx(source, "k", folder=tmp_path)
    (tmp_path / "lib" / "factor.h").write_text("#define FACTOR 4\n")
    assert ", 20;" in ptx(source, "k", folder=tmp_path)
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
def test_a_toolkit_says_the_same(tmp_path: Path) -> None:
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
    assert ".target sm_80" in ptx(ONE, "one", "sm_80")


def test_nothing_is_compiled_twice(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


# --- When something is missing ------------------------------------------------------------------------------------


def test_an_unknown_architecture_lists_the_known() -> None:
    with pytest.raises(CudaError, match=r"does not compile for 'sm_70'; it knows sm_75, .*sm_90"):
        nvrtc.compile(ONE, "one", "sm_70")
    with pytest.raises(CudaError, match="does not compile for 'h100'"):
        nvrtc.compile(ONE, "one", "h100")


def test_without_nvrtc_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libraries, "_wheel_folders", lambda kind: iter(()))
    monkeypatch.setattr(libraries, "_toolkit_folders", lambda *kinds: iter(()))
    monkeypatch.setenv("PATH", "")
    assert not nvrtc.available()
    with pytest.raises(
        MissingExtraError, match=r"^NVRTC, .* is not installed; run: pip install 'mlsys-labkit\[cuda\]'"
    ):
        nvrtc.check(ONE)
    with pytest.raises(MissingExtraError, match=r"^nvdisasm, .* run: pip install 'mlsys-labkit\[cuda\]'"):
        libraries.find_nvdisasm()


def test_the_newest_copy_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, folder in (("libnvrtc.so.12", "cuda_nvrtc"), ("libnvrtc.so.13", "cu13"), ("libnvrtc.alt.so.13", "cu13")):
        (tmp_path / "nvidia" / folder / "lib").mkdir(parents=True, exist_ok=True)
        (tmp_path / "nvidia" / folder / "lib" / name).touch()
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert libraries.find_nvrtc().library.name == "libnvrtc.so.13"
    assert libraries.find_nvrtc().builtins is None


def test_a_compiler_that_hangs_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LABKIT_CUDA_COMPILE_SECONDS", "0.001")
    with pytest.raises(CompileError, match=r"did not finish within 0\.001 s and was stopped"):
        nvrtc.compile("// a source of its own\n" + ONE, "one")


def test_a_compiler_that_crashes_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "nvidia" / "cu13" / "lib" / "libnvrtc.so.13"
    broken.parent.mkdir(parents=True)
    broken.write_bytes(b"not a library")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    with pytest.raises(CudaError, match=r"^NVRTC \(.*libnvrtc\.so\.13\) ended with 1: OSError: .*") as caught:
        nvrtc.compile(ONE, "one")
    assert "\n" not in str(caught.value)


def test_the_notebook_never_loads_the_compiler() -> None:
    """It is 140 MB of foreign code that a student's source goes through: its crash must not be the notebook's."""
    code = (
        "import sys; from mlsys_labkit.cuda.nvidia import nvrtc;"
        f"nvrtc.check({ONE!r}); maps = open('/proc/self/maps').read(); print('nvrtc' in maps)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ)
    assert ran.stdout.strip() == "False"


def test_the_process_answers_without_the_kit(tmp_path: Path) -> None:
    found = libraries.find_nvrtc()
    request = {"library": str(found.library), "builtins": str(found.builtins) if found.builtins else None}
    command = [sys.executable, "-I", "-S", str(Path(libraries.__file__).with_name("nvrtc_process.py"))]
    ran = subprocess.run(command, input=json.dumps(request), capture_output=True, text=True, check=True, cwd=tmp_path)
    assert "sm_90" in json.loads(ran.stdout)["architectures"]
