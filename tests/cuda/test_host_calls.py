"""A kernel that calls the host's half of CUDA is refused in nvcc's words; what a device may call is not."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from mlsys_labkit import cuda
from mlsys_labkit.cuda import run_program
from mlsys_labkit.cuda.errors import CudaCompileError, CudaError
from mlsys_labkit.cuda.source.host_calls import host_calls
from mlsys_labkit.cuda.source.source import Source

REFUSED = [
    ("__global__ void k(int* p) {\n  cudaMemcpy(p, p, 4, cudaMemcpyDefault);\n}", 2, "cudaMemcpy", "__global__", "k"),
    ("__global__ void __launch_bounds__(64) k(int* p) {\n\n  cudaDeviceSynchronize();\n}",
     3, "cudaDeviceSynchronize", "__global__", "k"),
    ("__device__ int ready() {\n  return cudaStreamQuery(0);\n}\n__global__ void k(int* p) { *p = ready(); }",
     2, "cudaStreamQuery", "__device__", "ready"),
    ("__global__ void k(int* p) {\n  cudaDeviceProp d;\n  if (cudaGetDeviceProperties(&d, 0) == 0) *p = 1;\n}",
     3, "cudaGetDeviceProperties", "__global__", "k"),
]  # fmt: skip
ACCEPTED = [
    "__global__ void k(int* p) { int n; *p = cudaGetDevice(&n) + cudaGetLastError(); }",
    "__host__ __device__ int ask(int* n) { return cudaGetDeviceCount(n); }",
    "struct Box { int cudaMemcpy(int) const; };  __device__ int f(Box b) { return b.cudaMemcpy(1); }",
    "__device__ int cudaAddOne(int x) { return x + 1; }  __device__ int g(int x) { return cudaAddOne(x); }",
    "__device__ int n;  void host(int* p) { cudaMemcpy(p, p, 4, cudaMemcpyDefault); }",
    "#define CHECK(x) x\n__device__ float t[2] = {1, 2};  void f() { CHECK(cudaDeviceSynchronize()); }",
    "#define BOTH __host__ __device__ inline\nBOTH int up(int a) { return a; }  __global__ void k(int* p) { up(1); }",
]
MAIN = "\nint main() { k<<<1, 1>>>(nullptr); }"


@pytest.mark.parametrize(("source", "line", "called", "kind", "caller"), REFUSED)
def test_the_call_is_refused_with_its_line(source: str, line: int, called: str, kind: str, caller: str) -> None:
    words = f'calling a __host__ function("{called}") from a {kind} function("{caller}") is not allowed'
    for build in (lambda: run_program(source + MAIN), lambda: cuda.compile(source, backend="simulator", strict=False)):
        with pytest.raises(CudaCompileError) as caught:
            build()
        assert [(one.line, one.text) for one in caught.value.diagnostics] == [(line, words)]


@pytest.mark.parametrize("source", ACCEPTED)
def test_what_is_no_such_call_passes(source: str) -> None:
    assert host_calls(Source(source)) == []


@pytest.mark.parametrize("source", [*(source for source, *_ in REFUSED), *ACCEPTED[:2], *ACCEPTED[4:]])
def test_nvcc_agrees(source: str, tmp_path: Path) -> None:
    if shutil.which("nvcc") is None:
        pytest.skip("nvcc is not installed: nothing to compare with")
    (tmp_path / "k.cu").write_text(source)
    said = subprocess.run(
        ["nvcc", "-rdc=true", "-arch=sm_90", "-ptx", "-o", "k.ptx", "k.cu"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert ("calling a __host__ function" in said.stderr) == bool(host_calls(Source(source)))
    assert all(one.text.split(" from ")[0] in said.stderr for one in host_calls(Source(source)))


@pytest.mark.parametrize("name", ["kernel.cu", "src/my kernels.cuh", "../matmul.cpp"])
@pytest.mark.parametrize("build", [cuda.compile, cuda.compile_all])
def test_the_name_of_a_file_is_no_source(name: str, build: object) -> None:
    with pytest.raises(CudaError, match="looks like the name of a file; to read that, pass a path: Path"):
        build(name)
