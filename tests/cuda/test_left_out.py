"""Features that nvcc takes and the simulator does not: a line with the name, the student's line, and another way."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import mlsys_labkit.cuda as cuda
from tests.cuda.program_helpers import run

TENSOR_MAP = """#include <cuda.h>
#include <cstdint>
int main() {
  CUtensorMap map; cuuint64_t size[3] = {64, 8, 8}; int corner[1] = {0};
  return cuTensorMapEncodeIm2col(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 3, nullptr, size, nullptr, corner, corner, 8, 8,
                                 nullptr, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
                                 CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}
"""
TCGEN05 = """#include <cstdint>
__device__ void fence() {
  asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
}
__global__ void k(float* out) {
  fence();
  asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory");
}
int main() { k<<<1, 128>>>(nullptr); }
"""
SOBOL = """#include <curand_kernel.h>
__global__ void k(unsigned (*v)[32], curandStateSobol32* s, float* out) {
  curand_init(v[threadIdx.x], 0, &s[threadIdx.x]);
  out[threadIdx.x] = curand_uniform(&s[threadIdx.x]);
}
int main() { k<<<1, 1>>>(nullptr, nullptr, nullptr); }
"""
TEXTURE = """#include <cuda.h>
int main() {
  CUtexObject t; CUDA_RESOURCE_DESC r; CUDA_TEXTURE_DESC d;
  return cuTexObjectCreate(&t, &r, &d, nullptr);
}
"""
SPGEMM = """#include <cusparse.h>
int main() {
  cusparseSpGEMMDescr_t d;
  return cusparseSpGEMM_createDescr(&d);
}
"""
CUFFT_XT = """#include <cufftXt.h>
int main() {
  cufftHandle p = 0; cudaLibXtDesc* d;
  return cufftXtMalloc(p, &d, CUFFT_XT_FORMAT_INPLACE);
}
"""
WAYS = [
    (TENSOR_MAP, 5, "tensor maps of im2col", "cuTensorMapEncodeTiled", ""),
    (TCGEN05, 3, "inline PTX tcgen05.fence", "wgmma.mma_async", "7"),
    (SOBOL, 2, "cuRAND's Sobol generators", "curandStatePhilox4_32_10_t", ""),
    (TEXTURE, 3, "the driver API's textures", "cudaCreateTextureObject", "4"),
    (SPGEMM, 3, "cuSPARSE's products of two sparse matrices", "cusparseSpMM", "4"),
    (CUFFT_XT, 3, "cuFFT's callbacks and several GPUs", "cufft.h", "4"),
]


@pytest.mark.parametrize(("source", "line", "feature", "other", "also"), WAYS)
def test_feature_is_refused_once_with_its_lines_and_another_way(source, line, feature, other, also):
    with pytest.raises(cuda.CudaCompileError) as caught:
        run(source)
    (only,) = caught.value.diagnostics
    assert only.line == line
    assert only.text.startswith(feature)
    assert ": left out of the simulator; a GPU is needed; what runs here: " in only.text
    assert other in only.text
    lines = re.search(r"\(also in lines? ([\d, ]+)\)", only.text)
    assert (lines[1] if lines else "") == also


@pytest.mark.parametrize("source", [TCGEN05, SOBOL])
def test_kernel_alone_is_refused_in_the_same_words(source: str):
    with pytest.raises(cuda.CudaCompileError) as caught:
        cuda.compile(source, "k", backend="simulator")
    assert [": left out of the simulator; a GPU" in one.text for one in caught.value.diagnostics] == [True]


def test_header_that_a_condition_leaves_out_is_not_blamed(tmp_path: Path):
    (tmp_path / "state.h").write_text("#ifdef WATCHED\n#include <nvml.h>\n#endif\nnothing_like_it state;\n")
    (tmp_path / "main.cu").write_text('#include "state.h"\n#if 0\n#include <nccl.h>\n#endif\nint main() {}\n')
    with pytest.raises(cuda.CudaCompileError) as caught:
        cuda.run_program(tmp_path / "main.cu", backend="simulator")
    assert [(one.file, one.line) for one in caught.value.diagnostics] == [("state.h", 4)]
    assert "nothing_like_it" in str(caught.value)


@pytest.mark.parametrize("name", ["cuFlushGPUDirectRDMAWrites(1, 2)", "cudaGreenCtx_t g", "CUDA_POOL_ATTACH p"])
def test_name_of_nvidias_that_no_header_here_has_is_left_out_and_hides_what_follows(name: str):
    with pytest.raises(cuda.CudaCompileError, match=r"line 2: \w+: left out of the simulator's stand-ins") as caught:
        run(f"#include <cuda.h>\nint main() {{ {name};\n return g + p; }}")
    assert len(caught.value.diagnostics) == 1


def test_slip_of_the_pen_in_a_librarys_name_is_no_feature():
    with pytest.raises(cuda.CudaCompileError, match="did you mean 'cublasCreate") as caught:
        run("#include <cublas_v2.h>\nint main() { cublasHandle_t h; cublasCreat(&h); }")
    assert "left out" not in str(caught.value)


def test_names_that_large_programs_use_are_there():
    result = run("""#include <cuda.h>
        #include <cublas_v2.h>
        #include <nvtx3/nvToolsExtCudaRt.h>
        static cublasDataType_t bias(bool half) { return half ? CUDA_R_16BF : CUDA_R_32F; }
        __global__ void k(CUtexObject t, float* out) { out[threadIdx.x] = tex1Dfetch<float>(t, threadIdx.x); }
        int main() {
          cudaStream_t s; cudaStreamCreate(&s); nvtxNameCudaStreamA(s, "main stream"); nvtxNameCudaDeviceA(0, "mine");
          float *x, *out; cudaMallocManaged(&x, 128); cudaMallocManaged(&out, 128); x[3] = 5;
          cudaResourceDesc r = {}; r.resType = cudaResourceTypeLinear; r.res.linear.devPtr = x;
          r.res.linear.desc = cudaCreateChannelDesc<float>(); r.res.linear.sizeInBytes = 128;
          cudaTextureDesc d = {}; CUtexObject t; cudaCreateTextureObject(&t, &r, &d, nullptr);
          k<<<1, 32>>>(t, out); cudaDeviceSynchronize();
          CUdeviceptr begin; size_t bytes;
          if (cuMemGetAddressRange(&begin, &bytes, (CUdeviceptr)(x + 3)) || bytes != 128) return 2;
          if ((float*)begin != x) return 4;
          if (cuMemGetAddressRange(&begin, &bytes, (CUdeviceptr)&bytes) != CUDA_ERROR_NOT_FOUND) return 3;
          return bias(true) == CUDA_R_16BF && out[3] == 5 ? 0 : 1; }""")
    assert result.returncode == 0, result.stdout + result.stderr


def test_kernel_takes_by_value_a_class_that_manages_memory():
    source = """struct Buffer {
      int n; int* data;
      Buffer(int n) : n(n) { cudaMallocManaged(&data, n * sizeof(int)); }
      Buffer(const Buffer& other) : n(other.n) { cudaMallocManaged(&data, n * sizeof(int)); }
      ~Buffer() { cudaFree(data); }
    };
    __global__ void fill(Buffer b) { b.data[threadIdx.x] = b.n++; }
    """
    assert cuda.compile(source, backend="simulator").signature == "fill(Buffer b)"


CUB = """#include <cub/cub.cuh>
template <typename T> __global__ void total(const T* x, T* sum) {
  using Reduce = cub::BlockReduce<T, 64>;
  __shared__ typename Reduce::TempStorage storage;
  T whole = Reduce(storage).Sum(x[threadIdx.x]);
  if (threadIdx.x == 0) *sum = whole;
}
template <typename T> struct Wider { typedef float type; };
template <> struct Wider<nv_bfloat16> { typedef double type; };
"""


def test_cub_brings_the_16_bit_formats_and_sums_bfloat16():
    x, out = np.full(64, 0x3FC0, np.uint16), np.zeros(1, np.uint16)  # 1.5 in bfloat16
    cuda.compile(CUB, "total<nv_bfloat16>", backend="simulator")[1, 64](x, out)
    assert out[0] == 0x42C0  # 96


def test_error_in_a_source_with_cub_is_told_in_words_about_the_source():
    with pytest.raises(cuda.CudaCompileError, match="undeclared_name") as caught:
        cuda.compile(CUB.replace("*sum = whole", "*sum = undeclared_name"), "total<float>", backend="simulator")
    assert "#error" not in str(caught.value)
