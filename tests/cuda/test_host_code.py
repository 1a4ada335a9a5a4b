"""A file with its host functions, as it is handed in, compiles to kernels."""

from __future__ import annotations

import numpy as np
import pytest

import mlsys_labkit.cuda as cuda
from mlsys_labkit.cuda.source.host_code import without_absent_in, without_host_code
from mlsys_labkit.cuda.source.source import Source

SOLUTION = r"""
#include <cuda_runtime.h>
#include <cublas_v2.h>
#include <vector>
#include "helper_cuda.h"
#define CHECK(call) do { cudaError_t error = (call); if (error != cudaSuccess) exit(1); } while (0)
struct Timer { cudaEvent_t begin; Timer() { cudaEventCreate(&begin); } float stop(); };
float Timer::stop() { return 0; }
struct Point { float x, y; };
constexpr int blocks(int n, int width) { return (n + width - 1) / width; }
inline int count(std::vector<int>& values) { return (int)values.size(); }
__constant__ float factors[2] = {1, 3};
extern "C" {
__global__ void scale(Point* points, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) points[i].x *= factors[1] * blocks(64, 32);
}
void solve(Point* points, int n, cudaStream_t stream = 0) {
  scale<<<blocks(n, 32), 32, 0, stream>>>(points, n);
  CHECK(cudaGetLastError());
}
}
namespace steps {
template <typename T> void go(T* x) { solve(x, 1); }
__device__ int twice(int x) { return 2 * x; }
}
__global__ void second(int* x) { x[0] = steps::twice(x[0]); }
int main(int argc, char** argv) {
#ifdef NEVER
  int unused;
#endif
  Timer timer;
  steps::go((Point*)nullptr);
}
"""


def test_kernels_of_a_file_with_its_launches_run():
    kernels = cuda.compile_all(SOLUTION, backend="simulator")
    assert list(kernels) == ["scale", "second"]
    points = np.ones(10, np.float32)
    kernels.scale[1, 32](points.view(np.uint8), 5)
    np.testing.assert_array_equal(points, [6, 1] * 5)
    one = np.array([21], np.int32)
    kernels.second[1, 1](one)
    assert one[0] == 42


def test_lines_of_the_kernels_stay():
    left = without_host_code(Source(SOLUTION)).text
    assert len(left) == len(SOLUTION)
    assert left.index("second(int") == SOLUTION.index("second(int")
    for gone in ("solve", "main", "Timer", "cublas"):
        assert gone not in left
    for kept in ("struct Point", "blocks(int n", "count("):
        assert kept in left


@pytest.mark.parametrize(
    "source",
    [
        "__host__ __device__ int min3(int a) { return a < 3 ? a : 3; }",
        "struct Table { int entries[4]; __device__ int at(int i) const { return entries[i]; } };",
        "template <class T> __global__ void f(T* x) { g<<<1, 1>>>(x); }",
        "const float weights[] = {1, 2, 3}; enum Kind { one, two }; using Real = float;",
        "#include <cstdio>\n#define LIMIT 3\n__device__ float cuda_cores[LIMIT];",
        "typedef curandState Generator;",
    ],
)
def test_what_kernels_may_use_stays(source: str):
    assert without_host_code(Source(source)).text == source


def test_a_macro_that_stands_in_a_host_function_stays():
    source = "void host() { cudaFree(0);\n#define WIDTH 32\n}\n__global__ void f(int* x) { x[0] = WIDTH; }"
    assert without_host_code(Source(source)).text == source


def test_an_error_behind_host_code_names_its_own_line():
    with pytest.raises(cuda.CudaCompileError) as caught:
        cuda.compile("int main() {\n  cudaFree(0);\n}\n__global__ void f(int* x) {\n  x[0] = wrong;\n}")
    assert caught.value.diagnostics[0].line == 5


def test_a_library_that_only_the_host_uses_need_not_be_there():
    host = "#include <cub/cub.cuh>\nvoid solve(int* x) { cub::DeviceReduce::Sum(nullptr, x); }\n"
    assert "cub" not in without_host_code(Source(host + "__global__ void f(int* x) { x[0] = 1; }")).text
    device = host + "__global__ void f(int* x) { x[0] = cub::LaneId(); }"
    assert "#include <cub/cub.cuh>" in without_host_code(Source(device)).text


EXTENSION = r"""
#include <ATen/cuda/CUDAContext.h>
#include <torch/extension.h>
#include <cuda_fp16.h>
namespace py = pybind11;
using namespace at;
#define CHECK_INPUT(x) TORCH_CHECK((x).is_cuda(), #x " has to be a CUDA tensor")
#define STATUS(call) do { if ((call) != cudaSuccess) throw 1; } while (0)
#define BIND(kind, type)                                     \
  void negate_##kind(torch::Tensor x) {                      \
    negate<<<1, 32>>>(x.data_ptr<type>(), (int)x.numel());   \
  }
template <typename scalar_t> __device__ scalar_t opposite(scalar_t at) { return -at; }
__host__ __device__ inline int divided_up(int a, int b) { return (a + b - 1) / b; }
inline void guarded(int (*call)()) { STATUS(call()); }
BIND(f32, float)
BIND(f64, double)
template <typename scalar_t>
__global__ void negate(scalar_t* x, int n) {
  int i = threadIdx.x;
  if (i < divided_up(2 * n, 2)) x[i] = opposite(x[i]);
}
std::vector<torch::Tensor> forward(torch::Tensor x) {
  CHECK_INPUT(x);
  AT_DISPATCH_FLOATING_TYPES(x.type(), "negate", ([&] { negate<scalar_t><<<1, 32>>>(x.data<scalar_t>(), 3); }));
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return {x};
}
TORCH_LIBRARY(mine, m) { m.def("forward", &forward); }
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }
"""


def test_kernels_of_a_pytorch_extension_run():
    kernel = cuda.compile(EXTENSION, "negate<float>", backend="simulator")
    x = np.arange(5, dtype=np.float32)
    kernel[1, 32](x, 3)
    np.testing.assert_array_equal(x, [0, -1, -2, 3, 4])


def test_pytorch_within_a_kernel_is_named():
    source = """
#include <torch/extension.h>
__global__ void first(torch::PackedTensorAccessor32<float, 1> x) { x[0] = 1; }
"""
    with pytest.raises(cuda.CudaCompileError, match="PyTorch's C"):
        cuda.compile_all(source, backend="simulator", strict=False)


ABSENT = r"""
#include <cuda.h>
#include <cudaTypedefs.h>
#include <nvml.h>
#define CHECK_DRIVER(call) check_driver((call), #call)
inline void check_driver(CUresult result, const char* call) { if (result != CUDA_SUCCESS) exit(1); }
struct Pool {
  CUmemGenericAllocationHandle handle;
  void grow(size_t bytes) { CHECK_DRIVER(cuMemCreate(&handle, bytes, nullptr, 0)); }
};
struct Status { int* value; __device__ void set(int to) { *value = to; }
                __host__ int get() { int got; cudaMemcpy(&got, value, 4, cudaMemcpyDeviceToHost); return got; } };
__global__ void report(int* x) { Status status{x}; status.set(7); }
int main() {
  Pool pool;
  pool.grow(1 << 20);
  nvmlInit();
  report<<<1, 1>>>(nullptr);
}
"""


def test_host_code_may_call_libraries_that_have_no_stand_in():
    x = np.zeros(1, np.int32)
    cuda.compile(ABSENT, backend="simulator", strict=False)[1, 1](x)
    assert x[0] == 7


def test_a_structure_with_a_library_under_a_condition_stays():
    config = """
struct Config {
  int rank;
#ifdef MANY
  ncclComm_t comm;
#endif
  __host__ int first();
};
"""
    kernel = """
__global__ void fill(int* x, Config config) { x[0] = config.rank; }
__host__ int Config::first() { fill<<<1, 1>>>(nullptr, *this); return 0; }
"""
    assert cuda.compile(config + kernel, backend="simulator", strict=False).name == "fill"


def test_a_kernel_that_takes_what_no_header_declares_is_refused():
    source = ABSENT.replace("report(int* x)", "report(int* x, CUmemGenericAllocationHandle handle)")
    with pytest.raises(cuda.CudaCompileError, match="CUmemGenericAllocationHandle"):
        cuda.compile(source, backend="simulator", strict=False)


def test_functions_of_the_source_with_the_names_of_a_library_stay():
    source = Source(
        "void cuCheck(int error) {}\n#define cuTimes 3\nvoid go() { cuCheck(cuTimes); }\nvoid gone() { cuMore(); }"
    )
    assert [line.split("(")[0] for line in without_absent_in([source], set())[0].text.splitlines()] == [
        "void cuCheck",
        "#define cuTimes 3",
        "void go",
        " " * len("void gone() { cuMore(); }"),
    ]


def test_a_kernel_takes_complex_numbers_of_cufft_beside_callbacks():
    source = """
#include <cufftXt.h>
__global__ void turn(cufftComplex* x) { x[0].y = x[0].x; }
void attach(cufftHandle plan, void** callback) { cufftXtSetCallback(plan, callback, CUFFT_CB_LD_REAL, nullptr); }
int main() { cufftHandle plan; cufftCreate(&plan); attach(plan, nullptr); turn<<<1, 1>>>(nullptr); }
"""
    x = np.array([3, 0], np.float32)
    cuda.compile(source, backend="simulator", strict=False)[1, 1](x)
    assert x[1] == 3
