"""run_program at its edges: sizes, limits, crashes, what is left out, and the two other doors, %%cu and labkit cu."""

from __future__ import annotations

import ctypes
import os
import re
from pathlib import Path

import pytest
from hypothesis import example, given, strategies as st

from mlsys_labkit._frontends.cli import main as labkit
from mlsys_labkit.cuda import run_program
from mlsys_labkit.cuda.errors import CudaCompileError, CudaError
from mlsys_labkit.cuda.program.command import run_cell
from mlsys_labkit.cuda.program.rewrite import find_kernels, rewrite
from mlsys_labkit.cuda.source.source import Source
from tests.cuda.program_helpers import HELLO, run


def test_arguments_reach_main() -> None:
    assert run(HELLO, "a b", 3).stdout == "5 7 3 a b 3\n"


def test_sizes_are_replaced_where_the_source_sets_them() -> None:
    result = run(HELLO, defines={"N": 2, "M": 9})
    assert result.stdout == "2 9 1\n"
    assert [launch.block for launch in result.launches] == [(9, 1, 1)] * 2


def test_sizes_in_variables_and_lists_are_replaced_too() -> None:
    source = """#include <cstdio>
const int WIDTH = 4096, HEIGHT = 4096;
static int area(int n, int rows) { int cells = n * rows; return cells; }
int main() {
  int n = 1 << 20, cells = 7;
  size_t rows = 8ULL * 1024;
  std::printf("%d %d %d %d %zu %d", WIDTH, HEIGHT, n, cells, rows, area(2, 3));
}"""
    defines = {"WIDTH": 5, "HEIGHT": 6, "n": 3, "rows": "2 * 2", "cells": 9}
    assert run(source, defines=defines).stdout == "5 6 3 9 4 6"


def test_a_macro_goes_before_a_variable_of_its_name() -> None:
    source = '#include <cstdio>\n#define SIZE 1\nint main() { { int size = 2; std::printf("%d %d", SIZE, size); } }'
    assert run(source, defines={"SIZE": 8}).stdout == "8 2"


def test_a_size_that_the_source_does_not_set_is_defined_for_it() -> None:
    source = '#include <cstdio>\n#ifndef SIZE\n#define SIZE 1\n#endif\nint main() { std::printf("%d", SIZE); }'
    assert run(source, defines={"SIZE": 8}).stdout == "8"
    assert run('#include <cstdio>\nint main() { std::printf("%d", SIZE); }', defines={"SIZE": 8}).stdout == "8"


def test_a_cooperative_launch_may_fill_the_device() -> None:
    # The idiom for grid-wide barriers: as many blocks as are resident at once. Every thread waits at the same time.
    source = """#include <cooperative_groups.h>
#include <cstdio>
__device__ int arrived, early;
__global__ void meet() {
  atomicAdd(&arrived, 1);
  auto grid = cooperative_groups::this_grid();
  grid.sync();
  if (atomicAdd(&arrived, 0) != int(grid.size())) atomicAdd(&early, 1);
}
int main() {
  cudaDeviceProp device;
  cudaGetDeviceProperties(&device, 0);
  int resident, threads = 512, came, missed;
  cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, meet, threads, 0);
  cudaLaunchCooperativeKernel((void*)meet, dim3(resident * device.multiProcessorCount), dim3(threads), nullptr, 0, 0);
  std::printf("%s ", cudaGetErrorString(cudaDeviceSynchronize()));
  cudaMemcpyFromSymbol(&came, arrived, sizeof came);
  cudaMemcpyFromSymbol(&missed, early, sizeof missed);
  std::printf("%d %d", came - device.multiProcessorCount * device.maxThreadsPerMultiProcessor, missed);
}"""
    assert run(source).stdout == "no error 0 0"


def test_launches_have_their_lines() -> None:
    (first, *_) = run(HELLO).launches
    assert (first.kernel, first.file, first.line, first.grid, first.error) == ("mark", "program.cu", 9, (1, 1, 1), "")


def test_printf_of_a_kernel_shows_when_the_host_waits() -> None:
    source = """#include <cstdio>
__global__ void hello() { printf("kernel\\n"); }
int main() { hello<<<1, 1>>>(); printf("host\\n"); WAIT }"""
    assert run(source.replace("WAIT", "cudaDeviceSynchronize();")).stdout == "host\nkernel\n"
    lost = run(source.replace("WAIT", ""))
    assert lost.stdout == "host\n"
    assert any("cudaDeviceSynchronize" in note for note in lost.notes)


def test_times_of_events_are_labelled() -> None:
    source = """#include <cstdio>
int main() { cudaEvent_t a, b; float ms = -1; cudaEventCreate(&a); cudaEventCreate(&b); cudaEventRecord(a);
cudaEventRecord(b); cudaEventElapsedTime(&ms, a, b); printf("%d", ms >= 0); }"""
    result = run(source)
    assert result.stdout == "1"
    assert any("simulated, not a GPU's time" in note for note in result.notes)
    assert "simulated, not a GPU's time" in result.stderr


def test_compile_errors_name_the_students_line_and_header(tmp_path: Path) -> None:
    with pytest.raises(CudaCompileError) as caught:
        run("int main() {\n  int x = 1\n  return x;\n}")
    assert caught.value.diagnostics[0].line in (2, 3)
    (tmp_path / "kernels.h").write_text("#pragma once\n__global__ void k() { undeclared = 1; }\n")
    (tmp_path / "main.cu").write_text('#include "kernels.h"\nint main() { k<<<1, 1>>>(); }\n')
    with pytest.raises(CudaCompileError, match="undeclared"):
        run_program(tmp_path / "main.cu")


def test_a_function_that_is_never_defined_is_named() -> None:
    with pytest.raises(CudaCompileError, match="helper"):
        run("void helper(int);\nint main() { helper(1); }")


@pytest.mark.parametrize(
    ("source", "line", "name"),
    [
        ("\ntexture<float, 1> t;\nint main() {}", 2, "texture references are no longer in CUDA"),
        ("int main() {\n  cudaMipmappedArray_t a;\n}", 2, "mipmapped arrays"),
        ("#include <cuda.h>\nint main() {\n  CUmodule m; cuModuleLoad(&m, 0);\n}", 3, "the driver API"),
        ("#include <cub/nothing.cuh>\nint main() {}", 1, "cub/nothing.cuh"),
        ("#include <cudnn.h>\nint main() {}", 1, "cuDNN"),
    ],
)
def test_features_left_out_are_named_with_their_line(source: str, line: int, name: str) -> None:
    with pytest.raises(CudaCompileError, match=name) as caught:
        run(source)
    first = caught.value.diagnostics[0]
    assert (first.line, name in first.text) == (line, True)


def test_a_file_that_is_not_there_is_an_error() -> None:
    with pytest.raises(CudaError, match=r"nowhere[.]cu cannot be read"):
        run_program("nowhere.cu")


def test_check_and_profile_together_are_refused() -> None:
    with pytest.raises(ValueError, match="one of them"):
        run_program(HELLO, check=True, profile=True)


def test_kernels_in_headers_keep_their_own_lines(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "k.cuh").write_text("#pragma once\n__global__ void out(int* p) {\n  p[99] = 1;\n}\n")
    program = tmp_path / "main.cu"
    program.write_text('#include "sub/k.cuh"\nint main() {\n  int* d;\n  cudaMalloc(&d, 4);\n  out<<<1, 1>>>(d);\n}\n')
    (finding,) = run_program(program, check=True).findings
    assert (finding.kind, finding.line, finding.source_line.strip()) == ("out_of_bounds", 3, "p[99] = 1;")
    assert "k.cuh" in finding.message


def test_one_virtual_gpu_behaves_as_a_machine_with_one() -> None:
    source = """#include <cstdio>
int main() {
  int n = 0; cudaGetDeviceCount(&n);
  cudaDeviceProp p; cudaGetDeviceProperties(&p, 0);
  size_t free_bytes, total; cudaMemGetInfo(&free_bytes, &total);
  void* big; cudaError_t e = cudaMalloc(&big, total + 1);
  printf("%d %d.%d %d %s %s", n, p.major, p.minor, p.warpSize, cudaGetErrorName(cudaSetDevice(1)), cudaGetErrorName(e));
}"""
    assert run(source).stdout == "1 9.0 32 cudaErrorInvalidDevice cudaErrorMemoryAllocation"


def test_launches_in_all_their_forms() -> None:
    source = """#include <cstdio>
template <typename T, int K = 2> __global__ void add(T* p, T v) { *p += v * K; }
__global__ void over(int* p) { *p += 1; }
__global__ void over(int* p, int v) { *p += v; }
__global__ void standard(int* p, int v = 3) { *p += v; }
__global__ void maybe(int* p, const int* q) { if (!q) *p += 1; }
namespace n { namespace m { __global__ void deep(int* p) { *p += 5; } } struct S { static void go(int*); }; }
template <int B> struct Runner { template <class T> static void run(T* p) { add<T, B><<<dim3(1), B / B>>>(p, T(1)); } };
#define CONFIG 1, 1
#define GO(kernel, ...) \\
    kernel<<<CONFIG, 0, \\
             0>>>(__VA_ARGS__)
static __global__ void hidden(int* p) { *p += 1; }
struct Pair { int a; int* p; };
__global__ void by_value(Pair pair, const float f) { *pair.p += pair.a + (f > 1); }
template <class F> __global__ void apply(int* p, F f) { f(p); }
__global__ void by_reference(Pair& pair) { *pair.p += pair.a; }
struct Owner {  // a kernel's copy of it is bytes: only the host's are constructed and destroyed
  int* p; int* copies;
  Owner(int* q, int* c) : p(q), copies(c) {}
  Owner(const Owner& other) : p(other.p), copies(other.copies) { ++*copies; cudaDeviceSynchronize(); }
  ~Owner() { cudaGetLastError(); }
};
__global__ void by_bytes(Owner owner) { *owner.p += 1; owner.p = nullptr; }
void use(void (*k)(int*), int* p) { k<<<1, 1>>>(p); }
int main() {
  int *d, h = 0;
  cudaMalloc(&d, sizeof(int)); cudaMemset(d, 0, sizeof(int));
  add<<<1, 1>>>(d, 1);                              // 2
  add<int><<<1, 1>>>(d, 1); add<int, 4><<<1, 1>>>(d, 1);  // 8
  over<<<1, 1>>>(d); over<<<1, 1>>>(d, 2);          // 11
  standard<<<1, 1>>>(d);                            // 14
  maybe<<<1, 1>>>(d, NULL); maybe<<<1, 1>>>(d, 0); maybe<<<1, 1>>>(d, nullptr);  // 17
  n::m::deep<<<CONFIG>>>(d); GO(hidden, d);         // 23
  Runner<1>::run(d);                                // 24
  by_value<<<1, 1>>>({2, d}, 2);                    // 27
  apply<<<1, 1>>>(d, [=] __device__ (int* p) { *p += 1; });  // 28
  void (*f)(int*) = hidden; f<<<1, 1>>>(d); (hidden)<<<1, 1>>>(d); use(hidden, d);  // 31
  int v = 4; void* args[] = {&d, &v}; cudaLaunchKernel((const void*)standard, dim3(1), dim3(1), args, 0, 0);  // 35
  cudaStream_t s = 0; over <<< 1 , 1 , 0 , s >>> ( d );  // 36
  if (h == 0) over<<<1, 1>>>(d); else over<<<1, 1>>>(d, 100);  // 37
  Pair* pair; cudaMallocManaged(&pair, sizeof(Pair)); *pair = {2, d}; by_reference<<<1, 1>>>(*pair);  // 39
  int copies = 0; Owner owner(d, &copies); by_bytes<<<2, 1>>>(owner);  // 40 or 41: both blocks add one, unordered
  by_reference << <1, 1 >> >(*pair);  // as Visual Studio writes it
  cudaMemcpy(&h, d, sizeof h, cudaMemcpyDeviceToHost);
  printf("%d %d %s", h >= 42, copies, cudaGetErrorName(cudaGetLastError()));
}"""
    assert run(source).stdout == "1 1 cudaSuccess"


def test_the_cell_shows_output_and_keeps_its_line_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cell("-D N=1 --backend simulator x", HELLO) is None
    assert capsys.readouterr().out == "1 7 2 x\n"
    result = run_cell(
        "--check",
        "__global__ void k(int* p) {\n  p[9] = 1;\n}\nint main() { int* d; cudaMalloc(&d, 4); k<<<1, 1>>>(d); }",
    )
    assert [finding.line for finding in result.findings] == [
        3
    ]  # the second line of the cell's body, the magic's being 1


def test_the_command_runs_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "hello.cu").write_text(HELLO)
    assert labkit(["cu", str(tmp_path / "hello.cu"), "--backend", "simulator", "-D", "N=2", "--", "-v"]) == 0
    assert capsys.readouterr().out == "2 7 2 -v\n"
    assert labkit(["cu", str(tmp_path / "hello.cu"), "--check"]) == 0
    assert "5 launches" in capsys.readouterr().out
    assert labkit(["cu", str(tmp_path / "none.cu")]) == 2


# ---- the rewriter: no line moves, and nothing but launches changes

TEXTS = st.lists(
    st.sampled_from(
        ["k<<<1, 2>>>(a)", "k<int><<<g,\n b>>>(a)", '"<<<"', "// <<<1>>>(\n", "/* k<<<1,1>>>(x)\n*/",
         "#if 0\nk<<<\n#endif\n", "a << b", "x >>> y", "'\\''", "R\"(k<<<1,1>>>(a))\"",
         "{",
         "#define L(k) \\\n k<<<1,1>>>()\n", "}", ";\n", " ", "\\\n", "<<<", ")", "1'000"]
    ),
    max_size=30,
)  # fmt: skip


@given(TEXTS)
def test_no_line_moves(pieces: list[str]) -> None:
    text = "".join(pieces)
    source = Source(text)
    assert rewrite(source, find_kernels([source])).text.count("\n") == text.count("\n")


@given(TEXTS)
@example(["b", "1'000", "\\\n"])  # a literal that the text's end cuts off
def test_the_mask_keeps_every_position(pieces: list[str]) -> None:
    text = "".join(pieces)
    masked = Source(text).masked
    assert len(masked) == len(text)
    assert [i for i, c in enumerate(text) if c == "\n"] == [i for i, c in enumerate(masked) if c == "\n"]


def test_error_names_and_texts_are_cudas_own() -> None:
    libraries = sorted(Path("/usr/local").glob("cuda*/lib64/libcudart.so*"))
    if not libraries:
        pytest.skip("the CUDA runtime is not installed: nothing to compare with")
    runtime = ctypes.CDLL(os.fspath(libraries[0]))
    runtime.cudaGetErrorName.restype = runtime.cudaGetErrorString.restype = ctypes.c_char_p
    expected = [
        f"{code} {runtime.cudaGetErrorName(code).decode()} {runtime.cudaGetErrorString(code).decode()}"
        for code in range(1000)
    ]
    source = """#include <cstdio>
int main() { for (int i = 0; i < 1000; ++i) { cudaError_t e = (cudaError_t)i;
  printf("%d %s %s\\n", i, cudaGetErrorName(e), cudaGetErrorString(e)); } }"""
    assert run(source).stdout.splitlines() == expected


def test_a_call_of_the_runtime_inside_a_kernel_fails_at_once() -> None:
    source = """#include <cstdio>
__host__ __device__ int ask(void** p) { return cudaMallocManaged(p, 4); }
__global__ void k(int* error) { void* p; *error = ask(&p); }
int main() { int* e; cudaMallocManaged(&e, 4); k<<<1, 1>>>(e); cudaDeviceSynchronize();
puts(cudaGetErrorName((cudaError_t)*e)); }"""
    assert run(source, timeout=600).stdout == "cudaErrorNotSupported\n"


def test_a_launch_too_large_for_the_simulator_states_the_reason() -> None:
    # Where addresses are limited there are 20,000 stacks, and no more.
    result = run_program(
        """
        #include <cooperative_groups.h>
        #include <cstdio>
        #include <sys/resource.h>
        __global__ void wait() { cooperative_groups::this_grid().sync(); }
        int main() {
          long pages = 0;
          if (std::fscanf(std::fopen("/proc/self/statm", "r"), "%ld", &pages) != 1) return 1;
          rlimit addresses;
          addresses.rlim_cur = addresses.rlim_max = pages * 4096ull + (40ull << 30);
          setrlimit(RLIMIT_AS, &addresses);
          cudaLaunchCooperativeKernel((void*)wait, dim3(264), dim3(1024), nullptr);
          return cudaDeviceSynchronize();
        }
        """
    )
    assert result.returncode == 719 % 256  # cudaErrorLaunchFailure, as the shell sees it
    assert "too many threads wait at once" in result.stderr


def test_race_in_a_header_is_told_with_the_headers_lines(tmp_path: Path) -> None:
    (tmp_path / "k.h").write_text("__global__ void k(int* p) {\n  p[0] = threadIdx.x;\n  p[threadIdx.x] += p[0];\n}\n")
    (tmp_path / "main.cu").write_text(
        "\n" * 40
        + '#include "k.h"\nint main() { int* p; cudaMalloc(&p, 256); cudaMemset(p, 0, 256); k<<<1, 64>>>(p); }\n'
    )
    findings = run_program(tmp_path / "main.cu", check=True, backend="simulator").findings
    assert findings
    for finding in findings:
        assert {int(one) for one in re.findall(r"lines? (\d+)", finding.message)} <= {2, 3}
