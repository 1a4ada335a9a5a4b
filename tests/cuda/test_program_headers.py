"""Headers that programs bring from the CUDA samples and from Thrust, against sums computed by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlsys_labkit.cuda import run_program


def test_helper_math_computes_member_by_member() -> None:
    source = """#include <cstdio>
    #include <helper_math.h>
    __global__ void move(float4* p, const float4* v, float dt) {
      int i = threadIdx.x;
      float4 q = p[i];
      q += make_float4(make_float3(v[i]) * dt, 0.0f);
      p[i] = q;
    }
    int main() {
      float3 a = make_float3(1, 2, 3), b = make_float3(4.0f);
      float3 c = cross(a, b) / 2 + 1.0f - b * 2.0f;
      std::printf("%g %g %g, %g %g, ", c.x, c.y, c.z, dot(a, b), length(make_float2(3, 4)));
      int3 k = make_int3(7, 8, 9) / 2 + 1;
      uint2 u = max(make_uint2(1, 9), make_uint2(5));
      float2 f = clamp(make_float2(-1, 2), 0.0f, 1.0f);
      float3 r = reflect(make_float3(1, -1, 0), make_float3(0, 1, 0));
      std::printf("%d %d %d, %u %u, %g %g, %g %g, ", k.x, k.y, k.z, u.x, u.y, f.x, f.y, r.x, r.y);
      std::printf("%g %d, ", lerp(make_float4(0.0f), make_float4(8.0f), 0.25f).w, clamp(5, 1, 3));
      float4 *p, *v;
      cudaMallocManaged(&p, 32 * sizeof *p);
      cudaMallocManaged(&v, 32 * sizeof *v);
      for (int i = 0; i < 32; ++i) { p[i] = make_float4(float(i)); v[i] = make_float4(1, 2, 3, 4); }
      move<<<1, 32>>>(p, v, 0.5f);
      cudaDeviceSynchronize();
      std::printf("%g %g %g %g", p[10].x, p[10].y, p[10].z, p[10].w);
    }"""
    expected = "-9 -3 -9, 24 5, 4 5 5, 5 9, 0 1, 1 1, 2 3, 10.5 11 11.5 10"
    assert run_program(source, backend="simulator").stdout == expected


def test_thrusts_less_common_algorithms() -> None:
    source = """#include <cstdio>
    #include <thrust/detail/type_traits.h>
    #include <thrust/device_vector.h>
    #include <thrust/distance.h>
    #include <thrust/functional.h>
    #include <thrust/mismatch.h>
    #include <thrust/set_operations.h>
    #include <thrust/system/cuda/execution_policy.h>
    #include <thrust/transform_scan.h>
    int main() {
      const int odd[] = {1, 3, 5, 7}, prime[] = {2, 3, 5, 7};
      thrust::device_vector<int> a(odd, odd + 4), b(prime, prime + 4), c(8);
      thrust::transform_inclusive_scan(a.begin(), a.end(), c.begin(), thrust::negate<int>(), thrust::plus<int>());
      std::printf("%d ", int(c[3]));
      thrust::transform_exclusive_scan(a.begin(), a.end(), c.begin(), thrust::negate<int>(), 100, thrust::plus<int>());
      std::printf("%d %d ", int(c[0]), int(c[3]));
      auto end = thrust::set_union(thrust::cuda::par, a.begin(), a.end(), b.begin(), b.end(), c.begin());
      std::printf("%d %d ", int(thrust::distance(c.begin(), end)), int(c[1]));
      end = thrust::set_intersection(a.begin(), a.end(), b.begin(), b.end(), c.begin());
      std::printf("%d ", int(end - c.begin()));
      end = thrust::set_difference(a.begin(), a.end(), b.begin(), b.end(), c.begin());
      std::printf("%d %d ", int(end - c.begin()), int(c[0]));
      std::printf("%d", int(thrust::mismatch(a.begin() + 1, a.end(), b.begin() + 1).first - a.begin()));
    }"""
    assert run_program(source, backend="simulator").stdout == "-16 100 91 5 2 3 1 1 4"


def test_curand_does_not_write_past_an_array() -> None:
    source = """#include <curand.h>
    int main() {
      float* numbers;
      cudaMalloc(&numbers, 100 * sizeof(float));
      curandGenerator_t generator;
      curandCreateGenerator(&generator, CURAND_RNG_PSEUDO_DEFAULT);
      bool fits = curandGenerateUniform(generator, numbers, 100) == CURAND_STATUS_SUCCESS;
      return fits && curandGenerateUniform(generator, numbers, 101) == CURAND_STATUS_LAUNCH_FAILURE ? 0 : 1;
    }"""
    result = run_program(source, backend="simulator")
    assert result.returncode == 0
    assert any("too small for its sizes" in note for note in result.notes)


def test_a_textbooks_header_checks_what_its_libraries_return() -> None:
    source = """#include "../common/common.h"
    #include <curand_kernel.h>
    int main() {
      curandGenerator_t generator;
      CHECK_CURAND(curandCreateGenerator(&generator, CURAND_RNG_PSEUDO_DEFAULT));
      CHECK_CURAND(curandDestroyGenerator(nullptr));
    }"""
    result = run_program(source, backend="simulator")
    assert result.returncode == 1
    assert "Got CURAND error 101 at program.cu:6" in result.stderr


def test_the_driver_api_tells_of_the_device_and_moves_memory() -> None:
    source = """#include <cuda.h>
    #include <cstdio>
    __global__ void twice(int* p) { p[threadIdx.x] *= 2; }
    int main() {
      int count, processors, h[3] = {1, 2, 3};
      CUdevice device, none;
      CUcontext context;
      CUdeviceptr p;
      const char* text;
      cuInit(0);
      cuDeviceGetCount(&count);
      cuDeviceGet(&device, 0);
      cuDeviceGetAttribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
      cuGetErrorString(cuDeviceGet(&none, 1), &text);
      cuCtxCreate(&context, 0, device);
      cuMemAlloc(&p, sizeof h);
      cuMemcpyHtoD(p, h, sizeof h);
      twice<<<1, 3>>>(reinterpret_cast<int*>(p));
      cuMemcpyDtoH(h, p, sizeof h);
      printf("%d %d %s %d %d %d", count, processors, text, h[0], h[1], h[2]);
      return cuMemFree(p) || cuCtxDestroy(context);
    }"""
    result = run_program(source, backend="simulator")
    assert (result.returncode, result.stdout) == (0, "1 132 invalid device ordinal 2 4 6")


def test_copies_between_devices_know_only_one() -> None:
    source = """int main() {
      int *a, *b, can = 1;
      cudaMalloc(&a, 4);
      cudaMalloc(&b, 4);
      cudaDeviceCanAccessPeer(&can, 0, 0);
      if (can || cudaDeviceEnablePeerAccess(1, 0) != cudaErrorInvalidDevice) return 1;
      if (cudaMemcpyPeer(a, 0, b, 0, 4) != cudaSuccess) return 2;
      return cudaMemcpyPeerAsync(a, 1, b, 0, 4) != cudaErrorInvalidDevice;
    }"""
    assert run_program(source, backend="simulator").returncode == 0


def test_integer_functions_of_libcupp_and_packed_dot_products() -> None:
    source = """#include <cuda/cmath>
    #include <cstdio>
    static_assert(cuda::ceil_div(7, 2) == 4 && cuda::ceil_div(8u, 2u) == 4 && cuda::round_down(9, 4) == 8);
    static_assert(cuda::next_power_of_two(33u) == 64 && cuda::isqrt(99) == 9 && cuda::uabs(-5) == 5u);
    __global__ void k() {
      const char4 a = make_char4(1, -2, 3, 4), b = make_char4(5, 6, 7, -8);
      printf("%d %u %d %d", __dp4a(a, b, 100), __dp4a(make_uchar4(255, 1, 1, 1), make_uchar4(2, 1, 1, 1), 1u),
             __dp2a_lo(make_short2(300, -2), a, 0), __dp2a_hi(make_short2(300, -2), a, 0));
    }
    int main() { k<<<cuda::ceil_div(2, 3), 1>>>(); cudaDeviceSynchronize(); }"""
    # 5 - 12 + 21 - 32 + 100; 510 + 3 + 1; 300 * 1 + 2 * 2; 300 * 3 - 2 * 4.
    assert run_program(source, backend="simulator").stdout == "82 514 304 892"


def test_a_textbooks_window_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "common").mkdir()
    (tmp_path / "common" / "cpu_bitmap.h").write_text("#include <GL/glut.h>\nstruct CPUBitmap;\n")
    (tmp_path / "ray.cu").write_text(
        '#include "common/cpu_bitmap.h"\nint main() { CPUBitmap image(2, 2); image.display_and_exit(); }\n'
    )
    assert run_program(tmp_path / "ray.cu", backend="simulator").returncode == 0
    assert (tmp_path / "bitmap.ppm").read_bytes().startswith(b"P6 2 2 255")


def test_thrusts_placeholders_and_memory_pools() -> None:
    source = """#include <thrust/device_vector.h>
    #include <thrust/count.h>
    #include <thrust/transform.h>
    #include <cstdio>
    using namespace thrust::placeholders;
    int main() {
      thrust::device_vector<float> x(4, 3.0f), y(4, 1.0f);
      x[1] = 7;
      thrust::transform(x.begin(), x.end(), y.begin(), y.begin(), 2.0f * _1 - -_2);
      cudaMemPoolProps properties = {};
      properties.allocType = cudaMemAllocationTypePinned;
      properties.location.type = cudaMemLocationTypeDevice;
      cudaMemPool_t pool;
      int* p;
      unsigned long long used;
      if (cudaMemPoolCreate(&pool, &properties) || cudaMallocFromPoolAsync(&p, 1000, pool, 0)) return 1;
      cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used);
      printf("%g %g %d %d", (float)y[0], (float)y[1], (int)thrust::count_if(x.begin(), x.end(), _1 > 3 && !(_1 == 8)),
             used >= 1000);
      return cudaFreeAsync(p, 0) || cudaMemPoolDestroy(pool);
    }"""
    result = run_program(source, backend="simulator")
    assert (result.returncode, result.stdout) == (0, "7 15 1 1")


def test_memory_that_many_launches_use_lies_in_huge_pages() -> None:
    source = """#include <sys/mman.h>
    #include <cstdio>
    #include <cstring>
    __global__ void touch(char* p) { p[blockIdx.x << 12] = 1; }
    int main() {
      char* page = (char*)mmap(nullptr, 4 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      page[2 << 20] = 1;
      char* whole = (char*)(((size_t)page + (2 << 20) - 1) >> 21 << 21);
      whole[0] = 1;
      if (madvise(whole, 2 << 20, 25)) return 3;  // MADV_COLLAPSE, which this machine may not have
      munmap(page, 4 << 20);
      char* p;
      cudaMalloc(&p, 16 << 20);
      for (int i = 0; i < 20; ++i) touch<<<4096, 1>>>(p);
      long most = 0, kib;
      char line[256];
      FILE* maps = fopen("/proc/self/smaps", "r");
      while (fgets(line, sizeof line, maps)) {
        if (sscanf(line, "AnonHugePages: %ld", &kib) == 1 && kib > most) most = kib;
      }
      return most < 12 << 10;
    }"""
    result = run_program(source, backend="simulator")
    if result.returncode == 3:
        pytest.skip("no MADV_COLLAPSE: a Linux before 6.1, or huge pages are switched off")
    assert result.returncode == 0


def test_packed_fp8_numbers_from_pairs_and_doubles() -> None:
    source = """#include <cuda_fp8.h>
    #include <cstdio>
    int main() {
      __nv_fp8x4_e4m3 a(__floats2half2_rn(1.f, 2.f), __floats2half2_rn(3.f, -4.f)), b(make_double4(1, 2, 3, 500));
      __nv_fp8x4_e5m2 c(__floats2bfloat162_rn(1.f, 2.f), __floats2bfloat162_rn(3.f, -4.f));
      float4 x = float4(a), y = float4(b), z = float4(c);
      printf("%g %g %g %g %g %g %g", x.x, x.w, y.z, y.w, z.y, z.w, float(__nv_fp8_e4m3(short(7))));
    }"""
    # 500 is beyond the largest number of e4m3, 448.
    assert run_program(source, backend="simulator").stdout == "1 -4 3 448 2 -4 7"


def test_dynamic_shared_arrays_that_a_macro_names() -> None:
    source = """#include <cstdio>
    template <class T> struct Shared;
    #define BUILD(t, n) \\
      template <> struct Shared<t> { __device__ t* get() { extern __shared__ t n[]; return n; } }
    BUILD(int, s_int);
    BUILD(float, s_float);
    template <class T> __global__ void reverse(T* out) {
      T* s = Shared<T>().get();
      s[threadIdx.x] = threadIdx.x;
      __syncthreads();
      out[threadIdx.x] = s[31 - threadIdx.x];
    }
    int main() {
      int* p; float* q;
      cudaMallocManaged(&p, 128);
      cudaMallocManaged(&q, 128);
      reverse<<<1, 32, 128>>>(p);
      reverse<<<1, 32, 128>>>(q);
      cudaDeviceSynchronize();
      printf("%d %g", p[1], q[2]);
    }"""
    assert run_program(source, backend="simulator").stdout == "30 29"


def test_thrusts_vectors_convert_and_its_generators_have_headers_of_their_own() -> None:
    source = """#include <thrust/device_vector.h>
    #include <thrust/host_vector.h>
    #include <thrust/random/linear_congruential_engine.h>
    #include <thrust/random/normal_distribution.h>
    #include <thrust/reduce.h>
    #include <cstdio>
    int main() {
      thrust::host_vector<float> h(3, 2.5f);
      thrust::device_vector<long> d = h;
      thrust::device_vector<double> e(d);
      thrust::minstd_rand rng;
      thrust::random::experimental::normal_distribution<float> normal(5, 0);
      printf("%ld %g %g", thrust::reduce(d.begin(), d.end()), thrust::reduce(e.begin(), e.end()), normal(rng));
    }"""
    assert run_program(source, backend="simulator").stdout == "6 6 5"
