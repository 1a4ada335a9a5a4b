"""Compilation of a text to kernel.so: the compiler, its limits, and what it is given."""

# ruff: noqa: E501

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from mlsys_labkit import cuda
from mlsys_labkit.cuda.cache import Cache
from mlsys_labkit.cuda.kernel.gcc import compiler, module
from mlsys_labkit.cuda.kernel.gcc.flags import Build, compile_flags
from mlsys_labkit.cuda.kernel.gcc.headers import precompiled
from mlsys_labkit.cuda.kernel.gcc.lines import LineTable
from mlsys_labkit.cuda.kernel.gcc.red_zones import with_red_zones
from mlsys_labkit.cuda.kernel.gcc.symbols import read_symbols, shared_arrays
from mlsys_labkit.cuda.kernel.gcc.toolchain import find_toolchain
from mlsys_labkit.cuda.kernel.gcc.unit import Unit
from mlsys_labkit.cuda.source.source import Source
from tests.cuda.compile_helpers import FILL, fake_compiler, version


def built(source: str, kernels: tuple[str, ...], build: Build = Build.FAST) -> Path:
    return module.compile_module(Unit(Source(source), kernels), build, find_toolchain(), Cache()).path


def test_no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        cuda.CudaError, match=r"g\+\+ 12 or newer, and no g\+\+ is installed; run: sudo apt install g\+\+"
    ):
        cuda.compile(FILL, backend="simulator")


def test_a_compiler_that_is_too_old_or_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/bin")
    fake_compiler(tmp_path / "bin", "g++", version("9.4.0"))
    for name in ("g++-12", "g++-13", "g++-14", "g++-15", "g++-16"):
        fake_compiler(tmp_path / "bin", name, "echo unknown argument >&2; exit 1")
    with pytest.raises(cuda.CudaError, match=r"g\+\+ is version 9.4.0"):
        find_toolchain()
    fake_compiler(tmp_path / "bin", "g++-13", version("13.2.0"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/bin:/usr/nowhere")
    assert find_toolchain().version == "13.2.0"


def test_a_compiler_chosen_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(cuda.CudaError, match="CXX=no-such-compiler does not do: no-such-compiler is not there"):
        cuda.compile(FILL, backend="simulator")
    monkeypatch.setenv("CXX", "nice -n 1 g++")
    assert find_toolchain().command[:3] == ("nice", "-n", "1")


@pytest.mark.parametrize(("system", "said"), [("Darwin", "open the lab on Binder"), ("Windows", "install WSL")])
def test_other_systems(monkeypatch: pytest.MonkeyPatch, system: str, said: str) -> None:
    monkeypatch.setattr("platform.system", lambda: system)
    monkeypatch.setenv("CXX", f"g++ -D{system}")
    with pytest.raises(cuda.CudaError, match=f"kernels run on Linux, and this is {system}.*{said}"):
        cuda.compile(FILL, backend="simulator")


def test_compile_time_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LABKIT_CUDA_COMPILE_SECONDS", "1")
    endless = (
        """template <int N> struct Deep { static constexpr long value = Deep<N - 1>::value + Deep<N - 2>::value; };
    template <> struct Deep<0> { static constexpr long value = 1; };
    template <> struct Deep<1> { static constexpr long value = 1; };
    constexpr long slow(long n) { long s = 0; for (long i = 0; i < n; ++i) s += i % 7; return s; }
    __global__ void f(long* x) { constexpr long a = slow(200000); x[0] = a; constexpr long b = slow(250000); x[1] = b;
    """
        + "".join(f"constexpr long c{i} = slow({100000 + i}); x[{i}] = c{i};\n" for i in range(200))
        + "}"
    )
    with pytest.raises(cuda.CudaCompileError, match="did not finish within 1 s"):
        cuda.compile(endless, strict=False, backend="simulator")
    monkeypatch.delenv("LABKIT_CUDA_COMPILE_SECONDS")
    assert not compiler_processes()
    assert cuda.compile(FILL, backend="simulator")


def compiler_processes() -> list[str]:
    """Return the compilers that this process started and that still run."""
    said = subprocess.run(
        ["ps", "-o", "pid,ppid,comm", "--ppid", str(os.getpid())], capture_output=True, text=True
    ).stdout
    return [line for line in said.splitlines() if "g++" in line or "cc1plus" in line]


def test_nested_unrolling_compiles_in_seconds() -> None:
    """Unrolled in full, these loops would have sixteen million products."""
    loops = "".join(f"#pragma unroll\nfor (int {i} = 0; {i} < 256; ++{i})\n" for i in "abc")
    source = f"__global__ void f(float* x) {{ float s = 0;\n{loops} s += x[a] * x[b] + x[c];\n x[0] = s; }}"
    assert cuda.compile(source, backend="simulator")


@pytest.mark.parametrize("compile_them", [cuda.compile, cuda.compile_all])
def test_a_source_of_templates_alone_lists_them_and_an_instance(
    compile_them: Callable[[str], object],
) -> None:
    source = """template <int N> __global__ void fill(int* x) { x[threadIdx.x] = N; }
    template <typename T, int N> __global__ void scale(T* x) { x[threadIdx.x] *= N; }"""
    with pytest.raises(cuda.CudaCompileError) as refused:
        compile_them(source)
    said = str(refused.value)
    assert "only fill, template <int N>, on line 1, scale, template <typename T, int N>, on line 2;" in said
    advised = re.search(r'compile\(source, "(.*?)"\)$', said)
    assert advised, said
    x = np.zeros(4, np.int32)
    cuda.compile(source, advised[1], backend="simulator")[1, 4](x)
    assert (x == 16).all()


# ---- what is compiled ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("build", list(Build), ids=[build.value for build in Build])
def test_the_precompiled_header_is_used(build: Build, tmp_path: Path) -> None:
    """gcc silently ignores it when a flag differs; then every compilation takes a second longer."""
    toolchain = find_toolchain()
    header = precompiled(build, toolchain, Cache())
    (tmp_path / "x.cpp").write_text(FILL)
    said = compiler.run(
        toolchain, [*compile_flags(build, toolchain), "-include", str(header), "-H", "-S", "x.cpp"], tmp_path
    )
    assert re.search(rf"^! {re.escape(str(header))}\.gch$", said, re.MULTILINE), said[:500]


def test_no_build_links_a_sanitizer() -> None:
    for build in Build:
        said = subprocess.run(
            ["readelf", "-d", str(built(FILL, ("fill",), build))], capture_output=True, text=True
        ).stdout
        assert "libtsan" not in said


SHARED = """
__shared__ float at_file_scope[7];
extern __shared__ float dynamic[];
template <int N> __global__ void f(float* x)
{
    __shared__ float tile[N][N + 1];
    __shared__ char letter;
    extern __shared__ int same_place[];
    int i = threadIdx.x;
    tile[i % N][i % 3] = at_file_scope[i % 7] = dynamic[i] = letter = i;
    __syncthreads();
    x[i] = tile[i % 3][i % N] + at_file_scope[3] + same_place[1] + letter;
}
"""


def test_shared_arrays_are_known_by_name_and_size() -> None:
    for build in Build:
        arrays = {array.name: array for array in shared_arrays(built(SHARED, ("f<8>",), build))}
        assert {name: array.nbytes for name, array in arrays.items()} == {
            "tile": 8 * 9 * 4, "letter": 1, "at_file_scope": 28,
        }  # fmt: skip
        assert {name: array.function for name, array in arrays.items()} == {
            "tile": "f<8>(float*)", "letter": "f<8>(float*)", "at_file_scope": "",
        }  # fmt: skip


def test_red_zones_keep_arrays_apart() -> None:
    symbols = [
        one for one in read_symbols(built(SHARED, ("f<8>",), Build.INSTRUMENTED)) if one.is_thread_local and one.nbytes
    ]
    ranges = sorted((one.value, one.value + one.nbytes) for one in symbols if one.is_defined)
    ranges = [one for one in ranges if one[1] - one[0] != 232_448]
    assert len(ranges) == 3
    for (_, end), (begin, _) in pairwise(ranges):
        assert begin - end >= 256
    assert ranges[0][0] >= 256
    assert with_red_zones(".data\nx:\n.zero 8").endswith(".data\nx:\n.zero 8"), "only shared arrays get zones"


def test_dynamic_arrays_of_every_scope_are_one() -> None:
    source = """
    extern __shared__ int outside[];
    namespace q { template <typename T> __global__ void f(int* x) { extern __shared__ T inside[]; inside[0] = 7; __syncthreads(); x[0] = outside[0]; } }
    namespace { extern __shared__ int hidden[]; namespace p { extern __shared__ int deeper[]; } }
    __global__ void g(int* x) { outside[1] = 9; __syncthreads(); x[0] = hidden[1] + p::deeper[1]; }
    """
    for name, want in (("q::f<int>", 7), ("g", 18)):
        kernel = cuda.compile(source, name, backend="simulator")
        x = np.zeros(1, np.int32)
        kernel[1, 1, 64](x)
        assert x[0] == want
        assert kernel.check[1, 1, 64](x) == []


LINES = """#include "below.h"
template <typename T>
__device__ T twice(T x)
{
    return x + x;
}

__device__ void store(float* to, float value)
{
    *to = value;
}

__global__ void f(float* x)
{
    store(x + 1, twice(x[0]));
    below(x + 2);
    x[3] = 1;
}
"""


def test_lines_of_inlined_calls_and_included_files(tmp_path: Path) -> None:
    (tmp_path / "below.h").write_text("// first line\n__device__ void below(float* to)\n{\n    *to = 2;\n}\n")
    (tmp_path / "lines.cu").write_text(LINES)
    kernel = cuda.compile(tmp_path / "lines.cu", backend="simulator")
    x = np.ones(4, np.float32)
    counted = {(count.line, count.op): count.function for count in kernel.profile[1, 1](x).lines if count.space}
    assert (15, "load") in counted
    assert (10, "store") in counted
    assert counted[10, "store"] == "store"
    assert counted[16, "store"] == "f", "the call of what the included file stores"
    assert (4, "store") not in counted, "line 4 of the included file is none of the source"
    assert (17, "store") in counted
    np.testing.assert_array_equal(x, [1, 2, 2, 1])


def test_lines_of_a_kernel_that_a_header_defines_name_the_header(tmp_path: Path) -> None:
    (tmp_path / "kernels.h").write_text("// first line\n__global__ void g(float* x)\n{\n    x[0] = 2;\n}\n")
    (tmp_path / "main.cu").write_text('#include "kernels.h"\n\n\n__global__ void f(float* x) { x[1] = 1; }\n')
    profile = cuda.compile(tmp_path / "main.cu", "g", backend="simulator").profile[1, 1](np.ones(4, np.float32))
    assert [(count.file, count.line, count.executed) for count in profile.lines if count.requests] == [
        ("kernels.h", 4, 1)
    ]
    assert profile.line(4) == ()
    assert "kernels.h:4" in str(profile)


def test_a_line_table_holds_included_files(tmp_path: Path) -> None:
    (tmp_path / "below.h").write_text("// first line\n__device__ void below(float* to)\n{\n    *to = 2;\n}\n")
    unit = Unit(Source(LINES), ("f",), folder=tmp_path)
    path = module.compile_module(unit, Build.INSTRUMENTED, find_toolchain(), Cache()).path
    said = subprocess.run(["objdump", "-d", str(path)], capture_output=True, text=True, check=True).stdout
    calls = [int(line.split(":")[0], 16) for line in said.splitlines() if re.search(r"call.*__tsan_write4", line)]
    places = {(place.file, place.line) for place in LineTable(path, "kernel.cu").locate(calls).values()}
    assert places == {("", 10), ("", 17), (str(tmp_path / "below.h"), 4)}


def test_a_change_in_an_included_file_is_compiled(tmp_path: Path) -> None:
    for value in (3, 4):
        (tmp_path / "value.h").write_text(f"constexpr int value = {value};\n")
        (tmp_path / "k.cu").write_text('#include "value.h"\n__global__ void f(int* x) { x[0] = value; }')
        x = np.zeros(1, np.int32)
        cuda.compile(tmp_path / "k.cu", backend="simulator")[1, 1](x)
        assert x[0] == value


def test_defines() -> None:
    for defines, want in (({"N": 3}, 3), ({"N": "(1 + 4)"}, 5), ({"N": True}, 1)):
        x = np.zeros(1, np.int32)
        cuda.compile("__global__ void f(int* x) { x[0] = N; }", defines=defines, backend="simulator")[1, 1](x)
        assert x[0] == want


def test_macros_of_the_student_s_meet_none_of_ours() -> None:
    """Macro names that the kit's own code behind the source might use."""
    names = "A B C D E F G H I J K L M N O P Q R S T U V W X Y Z a b c i n o p x value run call describe kernel Text index arguments number"
    source = "".join(f"#define {name} 16\n" for name in names.split())
    assert cuda.compile(source + "__global__ void f(int* pointer) { pointer[0] = K; }", backend="simulator")


def test_windows_line_ends() -> None:
    source = "#define N \\\r\n 4\r\n__global__ void f(int* x)\r\n{\r\n#pragma unroll\r\n    for (int i = 0; i < N; ++i) x[i] = y;\r\n}\r\n"
    with pytest.raises(cuda.CudaCompileError) as caught:
        cuda.compile(source, strict=False, backend="simulator")
    assert (caught.value.diagnostics[0].line, caught.value.diagnostics[0].source_line) == (
        6, "    for (int i = 0; i < N; ++i) x[i] = y;",
    )  # fmt: skip
    x = np.zeros(4, np.int32)
    cuda.compile(source.replace("= y", "= i"), backend="simulator")[1, 1](x)
    np.testing.assert_array_equal(x, [0, 1, 2, 3])


def test_cuda_s_own_words_and_g_plus_plus_s() -> None:
    source = "__global__ void f(float* x)\n{\n    x[0] = nothing;\n}"
    for strict, said in ((None, 'identifier "nothing" is undefined'), (False, "nothing is not declared here")):
        with pytest.raises(cuda.CudaCompileError) as caught:
            cuda.compile(source, strict=strict, backend="simulator")
        (diagnostic,) = caught.value.diagnostics
        assert (diagnostic.line, diagnostic.source_line) == (3, "    x[0] = nothing;")
        assert said in diagnostic.text


def test_strict_refuses_what_only_nvidia_s_compiler_refuses() -> None:
    source = "__global__ void f(int* x) { register int kept = 3; x[0] = kept; }"
    assert cuda.compile(source, backend="simulator")
    with pytest.raises(cuda.CudaCompileError, match="register"):
        cuda.compile(source, strict=True, backend="simulator")


def test_importing_costs_no_compiler() -> None:
    """The package is imported by name alone, without its heavy modules."""
    code = (
        "import sys, mlsys_labkit as lk; lk.cuda; print([m for m in sys.modules if m.startswith('mlsys_labkit.cuda.')])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"
