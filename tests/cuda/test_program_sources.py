"""Programs and kernels written for nvcc: names and launches that the simulator must read as nvcc does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import mlsys_labkit.cuda as cuda
from mlsys_labkit._frontends.cli import main
from tests.cuda.program_helpers import run


def test_include_guards_of_cuda_are_defined():
    result = run("""
        #include <cuda_runtime.h>
        #include <curand.h>
        #include <cublas_v2.h>
        #if !defined(__CUDA_RUNTIME_H__) || !defined(__DRIVER_TYPES_H__) || !defined(CURAND_H_) || \\
            !defined(CUBLAS_API_H_)
        #error a guard of CUDA's headers is missing
        #endif
        const char* name(curandStatus_t s) { return s == CURAND_STATUS_ARCH_MISMATCH ? "arch" : ""; }
        int main() { return name(CURAND_STATUS_PREEXISTING_FAILURE)[0]; }
    """)
    assert result.returncode == 0


def test_launcher_may_have_its_kernels_name_and_kernels_may_go_by_address():
    result = run(r"""
        #include <cstdio>
        #include <map>
        namespace deep { __global__ void k(int* p, int n) { *p += n; } }
        template <class T, int N> __global__ void add(T* p) { *p += N; }
        __global__ void gelu(float* x, int n) { if (threadIdx.x < n) x[threadIdx.x] *= 2; }
        void gelu(float* x, int n, int block) { gelu<<<1, block>>>(x, n); }
        cudaError_t go(const void* f, void** a) { return cudaLaunchKernel(f, dim3(1), dim3(1), a, 0, 0); }
        void plain() {}
        int main() {
          float* f; int* d; int n = 5;
          cudaMallocManaged(&f, 128); cudaMallocManaged(&d, 4); f[0] = 4; *d = 1;
          gelu(f, 32, 32);
          void* a[] = {&d, &n};
          void* table[] = {(void*)deep::k, (void *)&add<int, 7>};
          int failed = go(table[0], a) | go(reinterpret_cast<const void*>(add<int, 7>), a) | go(table[1], a);
          int refused = go((void*)plain, a);
          cudaDeviceSynchronize();
          std::printf("%g %d %d %d\n", f[0], *d, failed, refused);
        }
    """)
    assert result.stdout == "8 20 0 98\n", str(result) + result.stderr


def test_launch_with_too_few_arguments_names_the_kernels_parameters():
    with pytest.raises(cuda.CudaCompileError) as caught:
        run("__global__ void k(float* p, int n) {}\nint main() { float* d = nullptr;\n k<<<1, 1>>>(d); }")
    assert [one.line for one in caught.value.diagnostics] == [3]
    assert "the kernel takes (float*, int), and the launch passes (float*)" in str(caught.value)


PTX = """__device__ __forceinline__ unsigned bfe(unsigned x) {
  unsigned r; asm("bfind.shiftamt.u32 %0, %1;" : "=r"(r) : "r"(x)); return r; }
"""


def test_assembly_that_nothing_calls_does_not_matter_and_other_is_refused_by_name():
    assert run(PTX + "__global__ void k(unsigned* p) {}\nint main() { k<<<1, 1>>>(nullptr); }").returncode == 0
    with pytest.raises(cuda.CudaCompileError) as caught:
        run(PTX + "__global__ void k(unsigned* p) { *p = bfe(*p); }\nint main() { k<<<1, 1>>>(nullptr); }")
    assert "line 2: inline PTX" in str(caught.value)
    assert "no such instruction" not in str(caught.value)


def test_kernel_that_returns_a_value_is_refused_as_by_nvcc():
    source = "__global__ int k(float* a) { a[0] = 1; return 1; }\n"
    for attempt in (lambda: cuda.compile(source, backend="simulator"), lambda: run(source + "int main() {}")):
        with pytest.raises(cuda.CudaCompileError, match="must have a void return type"):
            attempt()


HEADER = r"""#pragma once
#include <vector>
struct Timer { cudaEvent_t begin; };
void launch(float* x, int n, cudaStream_t stream);
#define CHECK(call) do { cudaError_t e = (call); if (e != cudaSuccess) exit(1); } while (0)
__device__ inline float shared_sum(float x) {
  extern __shared__ float cells[];
  cells[threadIdx.x] = x; __syncthreads();
  float s = 0;
  #pragma unroll 4
  for (int i = 0; i < 4; ++i) s += cells[i];
  return s;
}
__global__ void in_header(float* x) { x[threadIdx.x] = -1; }
"""

KERNEL = r"""#include "kit/header.cuh"
void tick(Timer& timer) { CHECK(cudaEventRecord(timer.begin)); }
__global__ void scale(float* x) { x[threadIdx.x] = shared_sum(x[threadIdx.x]); }
void launch(float* x, int n, cudaStream_t stream) { scale<<<1, n, 16, stream>>>(x); }
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    (tmp_path / "include" / "kit").mkdir(parents=True)
    (tmp_path / "src" / "kernels").mkdir(parents=True)
    (tmp_path / "include" / "kit" / "header.cuh").write_text(HEADER)
    (tmp_path / "src" / "kernels" / "scale.cu").write_text(KERNEL)
    return tmp_path


def test_headers_of_a_repository_lose_their_host_code(repository: Path):
    x = np.arange(4, dtype=np.float32)
    scale = cuda.compile(repository / "src" / "kernels" / "scale.cu", backend="simulator")
    assert scale.name == "scale"
    scale[1, 4, 16](x)
    np.testing.assert_array_equal(x, 6)
    cuda.compile(repository / "src" / "kernels" / "scale.cu", "in_header", backend="simulator")[1, 4](x)
    np.testing.assert_array_equal(x, -1)


def test_class_with_device_functions_may_launch():
    kernel = cuda.compile(
        """#include <vector>
        __global__ void grow(float* x);
        struct Layer {
          std::vector<float*> parts; cudaStream_t stream;
          __host__ __device__ float rate() const { return 3; }
          void forward(float* x) { grow<<<1, 32, 0, stream>>>(x); cudaStreamSynchronize(stream); throw 1; }
        };
        struct Plain { float v; __device__ float rate() const { return v; } void go() { cudaFree(0); } };
        __global__ void grow(float* x) { x[threadIdx.x] *= Plain{3}.rate(); }
        int main() { Layer layer; layer.forward(nullptr); }
        """,
        backend="simulator",
    )
    x = np.ones(32, np.float32)
    kernel[1, 32](x)
    np.testing.assert_array_equal(x, 3)


def test_error_in_a_header_names_its_cause_and_not_the_host(repository: Path):
    header = repository / "include" / "kit" / "header.cuh"
    header.write_text(header.read_text().replace("float s = 0;", "float s = missing;"))
    with pytest.raises(cuda.CudaCompileError) as caught:
        cuda.compile(repository / "src" / "kernels" / "scale.cu", backend="simulator")
    assert "missing is not declared here" in str(caught.value) or 'identifier "missing"' in str(caught.value)
    assert "JIT" not in str(caught.value)


def test_program_of_several_files(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "shared.cuh").write_text(
        "#pragma once\n__device__ float twice(float x) { return 2 * x; }\nvoid other(float*); float host(float);\n"
    )
    (tmp_path / "main.cu").write_text(
        """#include <cstdio>
        #include "shared.cuh"
        __global__ void first(float* x, int SIZE) { extern __shared__ float a[]; a[0] = *x; *x = twice(a[0]); }
        int main(int count, char** words) {
          float* x; cudaMallocManaged(&x, 4); *x = SCALE;
          first<<<1, 1, 4>>>(x, 1); other(x); cudaDeviceSynchronize();
          std::printf("%g %s\\n", host(*x), words[1]);
        }"""
    )
    (tmp_path / "other.cu").write_text(
        """#include "shared.cuh"
        __global__ void second(float* x) { extern __shared__ float b[]; b[0] = *x; *x = twice(b[0]) + 1; }
        void other(float* x) { second<<<1, 1, 4>>>(x); }"""
    )
    (tmp_path / "host.cpp").write_text("float host(float x) { return -x; }")
    files = [str(tmp_path / name) for name in ("main.cu", "other.cu", "host.cpp")]
    options = ["-I", str(tmp_path / "lib"), "-D", "SCALE=3", "-D", "SIZE=9", "--backend", "simulator"]
    for mode in ([], ["--check"]):
        assert main(["cu", *files, "word", *options, *mode]) == 0
        said = capfd.readouterr()
        assert said.out.startswith("-13 word\n")
        assert "labkit: -D SIZE: the program has no constant SIZE to replace" in said.out
    assert main(["cu", *files[:2], *options]) != 0
    assert "host(float) is declared and used, but not defined" in "".join(capfd.readouterr())


@pytest.mark.parametrize(
    ("called", "before"),
    [
        ("square", "float square(float x) { return x * x; }"),
        ("square", "static inline float square(float x)\n{ return x * x; }\nfloat cube(float x) { return x; }"),
    ],
)
def test_call_of_a_host_function_is_refused_as_by_nvcc(called: str, before: str):
    source = before + "\n__global__ void k(float* a) {\n a[threadIdx.x] = square(a[threadIdx.x]);\n}\n"
    for attempt in (lambda: cuda.compile(source, backend="simulator"), lambda: run(source + "int main() {}")):
        with pytest.raises(cuda.CudaCompileError) as caught:
            attempt()
        assert f'calling a __host__ function("{called}' in str(caught.value)
        assert [one.line for one in caught.value.diagnostics] == [before.count("\n") + 3]


@pytest.mark.parametrize("use", ["std::vector<int> v(3); *a = v[1];", "std::sort(a, a + 3);", 'std::cout << "x";'])
def test_standard_library_of_the_host_is_refused_in_a_kernel(use: str):
    source = f"#include <vector>\n#include <algorithm>\n#include <iostream>\n__global__ void k(int* a) {{ {use} }}"
    with pytest.raises(cuda.CudaCompileError, match="calling a __host__ function"):
        cuda.compile(source, backend="simulator", strict=False)


def test_functions_that_nvcc_takes_in_a_kernel_are_not_refused():
    source = """
    #include <vector>
    #include <type_traits>
    constexpr int up(int n, int m) { return (n + m - 1) / m; }
    __host__ __device__ float both(float x) { return x; }
    float both(float x, int host_only) { return x; }
    float hidden(float x) { return x; }
    #define times(x) ((x) * 2)
    float (times)(float x) { return x; }
    template <class F> __device__ float apply(F f, float x) { return f(x); }
    struct Op { __device__ float scale(float x) { return x; } __device__ float operator()(float x) { return x; } };
    float scale(float x) { return 2 * x; }
    float reduce(const std::vector<float>& v) { return v[0]; }
    namespace dev { __device__ float reduce(float x) { return x; } }
    __global__ void k(float* a) {
      auto hidden = [](float x) { return x + 1; };
      Op op;
      static_assert(!std::is_same<int, std::vector<int>>::value, "");
      a[0] = up(3, 2) + both(1) + hidden(1) + times(1) + apply(op, 1) + op.scale(2) + dev::reduce(1) + std::max(1, 2);
    }
    """
    x = np.zeros(1, np.float32)
    cuda.compile(source, backend="simulator")[1, 1](x)
    assert x[0] == 2 + 1 + 2 + 2 + 1 + 2 + 1 + 2


def test_host_function_of_another_file_hides_no_function_of_cuda(tmp_path: Path):
    (tmp_path / "host.cpp").write_text("static unsigned umin(unsigned a, unsigned b) { return a < b ? a : b; }\n")
    (tmp_path / "main.cu").write_text(
        "__global__ void k(unsigned* p) { *p = umin(3u, 4u); }\n"
        "int main() { unsigned* p; cudaMallocManaged(&p, 4); k<<<1, 1>>>(p); cudaDeviceSynchronize(); return *p; }\n"
    )
    result = cuda.run_program(tmp_path / "main.cu", sources=[tmp_path / "host.cpp"], backend="simulator")
    assert result.returncode == 3


def test_header_of_libcupp_that_is_not_there_is_refused_by_name():
    with pytest.raises(cuda.CudaCompileError, match="line 1: <cuda/iterator>: left out"):
        run("#include <cuda/iterator>\nint main() { return cuda::ceil_div(7, 2) != 4; }")


@pytest.mark.parametrize("check", [False, True])
def test_host_and_kernel_share_an_atomic(check: bool):
    source = r"""
        #include <cstdio>
        #include <cuda/atomic>
        enum State : int { waiting, ready };
        __global__ void k(cuda::std::atomic<State>* state, cuda::atomic<int>* n) {
          n->fetch_add(2); state->store(ready, cuda::memory_order_release);
        }
        int main() {
          cuda::std::atomic<State>* state; cuda::atomic<int>* n; int old = 5;
          cudaMallocHost(&state, sizeof(*state)); cudaMallocManaged(&n, sizeof(*n));
          state->store(waiting, cuda::memory_order_release); n->store(1); n->fetch_add(4);
          bool took = n->compare_exchange_strong(old, 6), again = n->compare_exchange_strong(old, 9);
          k<<<1, 1>>>(state, n);
          cudaDeviceSynchronize();
          auto seen = static_cast<volatile cuda::std::atomic<State>*>(state)->load(cuda::memory_order_acquire);
          std::printf("%d %d %d %d %d\n", seen, n->load(), took, again, old);
        }
    """
    result = run(source, check=check)
    assert result.stdout == "1 8 1 0 6\n", result.stderr
    assert not result.findings
