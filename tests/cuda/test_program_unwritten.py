"""``check`` of a program finds copies and calls of libraries that read device memory before anything has written it."""

from __future__ import annotations

from tests.cuda.program_helpers import run

# Each line with "// @" is to be found, and no other: "d", "f" and "g" are read, and nothing writes them.
PROGRAM = r"""
#include <cstdio>
#include <cublasLt.h>
#include <cublas_v2.h>
#include <cub/cub.cuh>
#include <cufft.h>
#include <thrust/device_ptr.h>
#include <thrust/reduce.h>
__global__ void write(float* p, int n) { if (threadIdx.x < n) p[threadIdx.x] = threadIdx.x; }
struct Best { double value; int index; };
__global__ void set(Best* best) { best[threadIdx.x].value = 1; best[threadIdx.x].index = 2; }
int main() {
  Best *best, kept[8];
  cudaMalloc(&best, sizeof kept);
  set<<<1, 8>>>(best);
  cudaMemcpy(kept, best, sizeof kept, cudaMemcpyDeviceToHost);
  cudaMemcpy(kept, best, sizeof *best, cudaMemcpyDeviceToHost);
  const float one = 1, zero = 0;
  float *a, *b, *c, *d, *e, *f, *g, *w, h[64], sum;
  cudaMalloc(&a, 256); cudaMalloc(&b, 256); cudaMalloc(&c, 256); cudaMalloc(&d, 256);
  cudaMalloc(&e, 256); cudaMalloc(&f, 256); cudaMalloc(&g, 256); cudaMalloc(&w, 256);
  cudaMemset(w, 0, 256);
  cudaMemcpy(h, w, 256, cudaMemcpyDeviceToHost);
  cudaMemcpy(h, a, 256, cudaMemcpyDeviceToHost);  // @
  write<<<1, 64>>>(b, 32);
  cudaMemcpy(h, b, 128, cudaMemcpyDeviceToHost);
  cudaMemcpy(h, b, 256, cudaMemcpyDeviceToHost);  // @
  cudaMemcpyAsync(c, a, 256, cudaMemcpyDeviceToDevice, 0);  // @
  cudaMemcpy2D(h, 32, b, 64, 32, 2, cudaMemcpyDeviceToHost);
  cudaMemcpy2D(h, 32, b, 64, 32, 3, cudaMemcpyDeviceToHost);  // @
  write<<<1, 64>>>(b, 63);
  cudaMemcpy(h, b, 256, cudaMemcpyDeviceToHost);  // @
  cublasHandle_t blas;
  cublasCreate(&blas);
  cublasSgemm(blas, CUBLAS_OP_N, CUBLAS_OP_N, 4, 4, 4, &one, w, 4, w, 4, &zero, e, 4);
  cublasSgemm(blas, CUBLAS_OP_N, CUBLAS_OP_N, 4, 4, 4, &one, w, 4, w, 4, &one, d, 4);  // @
  cublasSgemm(blas, CUBLAS_OP_N, CUBLAS_OP_N, 4, 4, 4, &one, w, 4, f, 4, &zero, e, 4);  // @
  cublasSaxpy(blas, 64, &one, w, 1, g, 1);  // @
  cublasSdot(blas, 32, w, 1, f, 2, &sum);  // @
  cublasSgemv(blas, CUBLAS_OP_N, 4, 4, &one, w, 4, f, 1, &zero, w, 1);  // @
  cublasSsyrk(blas, CUBLAS_FILL_MODE_LOWER, CUBLAS_OP_N, 4, 4, &one, f, 4, &zero, e, 4);  // @
  cublasSgeam(blas, CUBLAS_OP_N, CUBLAS_OP_T, 4, 8, &one, w, 4, &zero, f, 8, e, 4);
  cublasSgeam(blas, CUBLAS_OP_N, CUBLAS_OP_T, 4, 8, &one, w, 4, &one, f, 8, e, 4);  // @
  cublasGetVector(64, 4, f, 1, h, 1);  // @
  cublasLtHandle_t lt;
  cublasLtCreate(&lt);
  cublasLtMatmulDesc_t plain;
  cublasLtMatmulDescCreate(&plain, CUBLAS_COMPUTE_32F, CUDA_R_32F);
  cublasLtMatrixLayout_t four;
  cublasLtMatrixLayoutCreate(&four, CUDA_R_32F, 4, 4, 4);
  cublasLtMatmul(lt, plain, &one, w, four, w, four, &zero, f, four, e, four, nullptr, nullptr, 0, 0);
  cublasLtMatmul(lt, plain, &one, w, four, f, four, &zero, e, four, e, four, nullptr, nullptr, 0, 0);  // @
  cufftHandle plan;
  cufftPlan1d(&plan, 32, CUFFT_C2C, 1);
  cufftExecC2C(plan, (cufftComplex*)f, (cufftComplex*)w, CUFFT_FORWARD);  // @
  thrust::device_ptr<float> first(f);
  sum += thrust::reduce(first, first + 64);  // @
  sum += first[3];  // @
  void* storage = nullptr;
  size_t bytes = 0;
  cub::DeviceReduce::Sum(storage, bytes, f, w, 64);
  cudaMalloc(&storage, bytes);
  cub::DeviceReduce::Sum(storage, bytes, f, w, 64);  // @
  thrust::fill(first, first + 64, 1.0f);
  sum += thrust::reduce(first, first + 64) + first[3];
  std::printf("%g\n", sum + h[0]);
}
"""


def test_reads_of_unwritten_memory_by_copies_and_libraries_are_found() -> None:
    result = run(PROGRAM, check=True)
    marked = [number for number, line in enumerate(PROGRAM.splitlines(), 1) if "// @" in line]
    found = {one.line: one for one in result.findings}
    assert sorted(found) == marked, result
    assert {one.kind for one in result.findings} == {"uninitialized_global"}
    first, second = found[marked[0]], found[marked[1]]
    assert "the copy reads byte 0 of device memory (allocated in line 20)" in first.message
    assert "byte 128" in second.message
