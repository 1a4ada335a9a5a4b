// Copies one box between a tensor and shared memory, as the arguments say, and prints what came of it.
// Arguments: what (-1: load, 0: store, else the number of a reduction), type, swizzle, fill; then for each dimension its size, box,
// step, coordinate, and the bytes that follow it before the next one.
#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda/barrier>
#include <cuda/ptx>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>
namespace ptx = cuda::ptx;
namespace cde = cuda::device::experimental;
using Barrier = cuda::barrier<cuda::thread_scope_block>;
constexpr int kShared = 32768;

struct Place { int at[5]; };

__device__ void load(void* to, const CUtensorMap* map, int rank, Place p, Barrier& bar) {
  const unsigned smem = (unsigned)__cvta_generic_to_shared(to);
  const unsigned mbar = (unsigned)__cvta_generic_to_shared(cuda::device::barrier_native_handle(bar));
  if (rank == 1) cde::cp_async_bulk_tensor_1d_global_to_shared(to, map, p.at[0], bar);
  if (rank == 2) asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];"
                              :: "r"(smem), "l"(map), "r"(mbar), "r"(p.at[0]), "r"(p.at[1]) : "memory");
  if (rank == 3) asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint"
                              " [%0], [%1, {%3, %4, %5}], [%2], %6;"
                              :: "r"(smem), "l"(map), "r"(mbar), "r"(p.at[0]), "r"(p.at[1]), "r"(p.at[2]), "l"(0x1000000000000000ull) : "memory");
  if (rank == 4) cde::cp_async_bulk_tensor_4d_global_to_shared(to, map, p.at[0], p.at[1], p.at[2], p.at[3], bar);
  if (rank == 5) ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, to, map, p.at, cuda::device::barrier_native_handle(bar));
}

__global__ void copy_in(const __grid_constant__ CUtensorMap map, int rank, Place p, int bytes, unsigned char* out, int size) {
  extern __shared__ __align__(1024) unsigned char s[];
  __shared__ Barrier bar;
  for (int i = threadIdx.x; i < size; i += blockDim.x) s[i] = 0xAB;
  if (threadIdx.x == 0) {
    init(&bar, blockDim.x);
    asm volatile("prefetch.tensormap [%0];" :: "l"(&map) : "memory");
  }
  cde::fence_proxy_async_shared_cta();
  __syncthreads();
  Barrier::arrival_token token;
  if (threadIdx.x == 0) {
    load(s, &map, rank, p, bar);
    token = cuda::device::barrier_arrive_tx(bar, 1, bytes);
  } else {
    token = bar.arrive();
  }
  bar.wait(std::move(token));
  for (int i = threadIdx.x; i < size; i += blockDim.x) out[i] = s[i];
}

// The map lies in global memory.
__global__ void copy_out(const CUtensorMap* map, int rank, Place p, const unsigned char* in, int size, int what) {
  extern __shared__ __align__(1024) unsigned char s[];
  for (int i = threadIdx.x; i < size; i += blockDim.x) s[i] = in[i];
  cde::fence_proxy_async_shared_cta();
  __syncthreads();
  if (threadIdx.x != 0) return;
  const unsigned smem = (unsigned)__cvta_generic_to_shared(s);
  if (what == 0) cde::cp_async_bulk_tensor_2d_shared_to_global(map, p.at[0], p.at[1], s);
  const int two[2] = {p.at[0], p.at[1]};
  if (what == 1)
    asm volatile("cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%0, {%2, %3}], [%1];"
                 :: "l"(map), "r"(smem), "r"(p.at[0]), "r"(p.at[1]) : "memory");
  if (what == 2)
    asm volatile("cp.reduce.async.bulk.tensor.2d.global.shared::cta.min.tile.bulk_group [%0, {%2, %3}], [%1];"
                 :: "l"(map), "r"(smem), "r"(p.at[0]), "r"(p.at[1]) : "memory");
  if (what == 3) ptx::cp_reduce_async_bulk_tensor(ptx::space_global, ptx::space_shared, ptx::op_max, map, two, s);
  if (what == 4)
    asm volatile("cp.reduce.async.bulk.tensor.2d.global.shared::cta.and.tile.bulk_group [%0, {%2, %3}], [%1];"
                 :: "l"(map), "r"(smem), "r"(p.at[0]), "r"(p.at[1]) : "memory");
  if (what == 5)
    asm volatile("cp.reduce.async.bulk.tensor.2d.global.shared::cta.or.tile.bulk_group [%0, {%2, %3}], [%1];"
                 :: "l"(map), "r"(smem), "r"(p.at[0]), "r"(p.at[1]) : "memory");
  if (what == 6)
    asm volatile("cp.reduce.async.bulk.tensor.2d.global.shared::cta.xor.tile.bulk_group [%0, {%2, %3}], [%1];"
                 :: "l"(map), "r"(smem), "r"(p.at[0]), "r"(p.at[1]) : "memory");
  if (what == 7)
    asm volatile("cp.reduce.async.bulk.tensor.2d.global.shared::cta.inc.tile.bulk_group [%0, {%2, %3}], [%1];"
                 :: "l"(map), "r"(smem), "r"(p.at[0]), "r"(p.at[1]) : "memory");
  if (what == 8)
    asm volatile("cp.reduce.async.bulk.tensor.2d.global.shared::cta.dec.tile.bulk_group [%0, {%2, %3}], [%1];"
                 :: "l"(map), "r"(smem), "r"(p.at[0]), "r"(p.at[1]) : "memory");
  asm volatile("cp.async.bulk.commit_group;");
  asm volatile("cp.async.bulk.wait_group 0;");
}

int main(int count, char** words) {
  const int what = atoi(words[1]), type = atoi(words[2]), swizzle = atoi(words[3]), fill = atoi(words[4]), rank = (count - 5) / 5;
  const int item_of[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};
  const int item = item_of[type];
  cuuint64_t sizes[5], strides[5];
  cuuint32_t box[5], steps[5];
  Place p{};
  size_t all = item;
  int bytes = item;
  for (int i = 0; i < rank; i++) {
    char** given = words + 5 + 5 * i;
    sizes[i] = atoi(given[0]), box[i] = atoi(given[1]), steps[i] = atoi(given[2]), p.at[i] = atoi(given[3]);
    all = all * sizes[i] + atoi(given[4]);
    strides[i] = all;
    bytes *= i ? (box[i] + steps[i] - 1) / steps[i] : box[i];
  }
  unsigned char *tensor, *shared;
  cudaMalloc(&tensor, all);
  cudaMalloc(&shared, kShared);
  std::vector<unsigned char> given(all > kShared ? all : kShared);
  for (size_t i = 0; i < given.size(); i++) given[i] = (unsigned char)(i * 37 ^ i >> 8);
  cudaMemcpy(tensor, given.data(), all, cudaMemcpyHostToDevice);
  cudaMemset(shared, 0, kShared);
  alignas(64) CUtensorMap map;
  PFN_cuTensorMapEncodeTiled_v12000 encode = nullptr;
  cudaDriverEntryPointQueryResult found;
  cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", (void**)&encode, cudaEnableDefault, &found);
  if (found != cudaDriverEntryPointSuccess) return 9;
  CUresult error = encode(&map, (CUtensorMapDataType)type, rank, tensor, sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                          (CUtensorMapSwizzle)swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_128B, (CUtensorMapFloatOOBfill)fill);
  if (error != CUDA_SUCCESS) return 2;
  cudaFuncSetAttribute(copy_in, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared);
  const int rows = bytes / (box[0] * item), pitch = swizzle ? 16 << swizzle : box[0] * item, size = rows * pitch;
  std::vector<unsigned char> result(what < 0 ? size : all);
  if (what < 0) {
    copy_in<<<1, 64, kShared>>>(map, rank, p, bytes, shared, size);
    cudaMemcpy(result.data(), shared, size, cudaMemcpyDeviceToHost);
  } else {
    CUtensorMap* there;
    cudaMalloc(&there, sizeof map);
    cudaMemcpy(there, &map, sizeof map, cudaMemcpyHostToDevice);
    cudaMemcpy(shared, given.data(), size, cudaMemcpyHostToDevice);
    copy_out<<<1, 64, kShared>>>(there, rank, p, shared, size, what);
    cudaMemcpy(result.data(), tensor, all, cudaMemcpyDeviceToHost);
    cudaFree(there);
  }
  if (cudaDeviceSynchronize() != cudaSuccess) return 3;
  for (unsigned char each : result) printf("%02x", each);
  cudaFree(tensor), cudaFree(shared);
  return 0;
}
