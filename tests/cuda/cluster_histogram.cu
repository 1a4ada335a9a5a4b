#include <cstdio>
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
__global__ void cluster_hist(int *bins, const int nbins, const int bins_per_block, const int *input, size_t n) {
  extern __shared__ int smem[];
  int tid = cg::this_grid().thread_rank();
  cg::cluster_group cluster = cg::this_cluster();
  for (int i = threadIdx.x; i < bins_per_block; i += blockDim.x) smem[i] = 0;
  cluster.sync();
  for (int i = tid; i < n; i += blockDim.x * gridDim.x) {
    int id = input[i]; if (id < 0) id = 0; else if (id >= nbins) id = nbins - 1;
    int *dst = cluster.map_shared_rank(smem, id / bins_per_block);
    atomicAdd(dst + id % bins_per_block, 1);
  }
  cluster.sync();
  int *lbins = bins + cluster.block_rank() * bins_per_block;
  for (int i = threadIdx.x; i < bins_per_block; i += blockDim.x) atomicAdd(&lbins[i], smem[i]);
}
__global__ void __cluster_dims__(2, 1, 1) fixed(int* p) { p[blockIdx.x] = cg::this_cluster().block_rank() + 10 * cg::this_cluster().num_blocks(); }
int main() {
  const int nbins = 64, n = 4096;
  int *bins, *in, h[n];
  for (int i = 0; i < n; i++) h[i] = i * 7 % nbins;
  cudaMalloc(&bins, nbins * sizeof(int)); cudaMemset(bins, 0, nbins * sizeof(int));
  cudaMalloc(&in, sizeof h); cudaMemcpy(in, h, sizeof h, cudaMemcpyHostToDevice);
  cudaLaunchConfig_t config = {0};
  config.gridDim = 8; config.blockDim = 64;
  int cluster = 4, per = nbins / cluster;
  config.dynamicSmemBytes = per * sizeof(int);
  cudaFuncSetAttribute((void*)cluster_hist, cudaFuncAttributeMaxDynamicSharedMemorySize, config.dynamicSmemBytes);
  cudaLaunchAttribute attribute[1];
  attribute[0].id = cudaLaunchAttributeClusterDimension;
  attribute[0].val.clusterDim.x = cluster; attribute[0].val.clusterDim.y = 1; attribute[0].val.clusterDim.z = 1;
  config.numAttrs = 1; config.attrs = attribute;
  cudaError_t e = cudaLaunchKernelEx(&config, cluster_hist, bins, nbins, per, (const int*)in, (size_t)n);
  printf("%s\n", cudaGetErrorString(e));
  int got[nbins]; cudaMemcpy(got, bins, sizeof got, cudaMemcpyDeviceToHost);
  int bad = 0; for (int i = 0; i < nbins; i++) bad += got[i] != n / nbins;
  fixed<<<4, 1>>>(bins); cudaMemcpy(got, bins, 16, cudaMemcpyDeviceToHost);
  printf("bad %d fixed %d %d %d %d\n", bad, got[0], got[1], got[2], got[3]);
  fixed<<<3, 1>>>(bins); printf("%s\n", cudaGetErrorName(cudaGetLastError()));
  cudaFree(bins); cudaFree(in);
}
