// Groups of threads: tiles, coalesced groups, and a barrier over the whole grid.
#include <cooperative_groups.h>
#include <cstdio>
#include <cstdlib>

namespace cg = cooperative_groups;

__device__ int sumReduction(cg::thread_group g, int *x, int val)
{
    int lane = g.thread_rank();
    for (int i = g.size() / 2; i > 0; i /= 2) {
        x[lane] = val;
        g.sync();
        if (lane < i) val += x[lane + i];
        g.sync();
    }
    return g.thread_rank() == 0 ? val : -1;
}

__global__ void blockAndTiles(int *out)
{
    extern __shared__ int workspace[];
    cg::thread_block block = cg::this_thread_block();
    int rank = block.thread_rank();
    int whole = sumReduction(block, workspace, rank);
    if (rank == 0) out[0] = whole;
    block.sync();

    cg::thread_block_tile<16> tile = cg::tiled_partition<16>(block);
    int value = rank;
    for (int i = tile.size() / 2; i > 0; i /= 2) value += tile.shfl_down(value, i);
    if (tile.thread_rank() == 0) out[1 + rank / 16] = value;
}

__global__ void countOdd(const int *data, int n, int *count)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && data[i] % 2) {
        cg::coalesced_group active = cg::coalesced_threads();
        if (active.thread_rank() == 0) atomicAdd(count, active.size());
    }
}

__global__ void gridSum(const int *in, int n, int *partial, int *out)
{
    cg::grid_group grid = cg::this_grid();
    __shared__ int block_sum;
    if (threadIdx.x == 0) block_sum = 0;
    __syncthreads();
    for (int i = grid.thread_rank(); i < n; i += grid.size()) atomicAdd(&block_sum, in[i]);
    __syncthreads();
    if (threadIdx.x == 0) partial[blockIdx.x] = block_sum;
    grid.sync();
    if (grid.thread_rank() == 0) {
        int total = 0;
        for (unsigned int b = 0; b < gridDim.x; b++) total += partial[b];
        *out = total;
    }
}

int main()
{
    const int n = 3000, threads = 64;
    int *data, *out, *partial;
    cudaMallocManaged(&data, n * sizeof(int));
    cudaMallocManaged(&out, 16 * sizeof(int));
    cudaMallocManaged(&partial, 64 * sizeof(int));
    int expectedSum = 0, expectedOdd = 0;
    for (int i = 0; i < n; i++) {
        data[i] = (i * 37) % 101;
        expectedSum += data[i];
        expectedOdd += data[i] % 2;
    }
    bool ok = true;

    blockAndTiles<<<1, threads, threads * sizeof(int)>>>(out);
    cudaDeviceSynchronize();
    ok = ok && out[0] == threads * (threads - 1) / 2;
    for (int t = 0; t < threads / 16; t++) ok = ok && out[1 + t] == 16 * 16 * t + 120;

    out[0] = 0;
    countOdd<<<(n + 127) / 128, 128>>>(data, n, out);
    cudaDeviceSynchronize();
    ok = ok && out[0] == expectedOdd;

    int supported = 0, blocksPerSm = 0;
    cudaDeviceProp prop;
    cudaGetDeviceProperties(&prop, 0);
    cudaDeviceGetAttribute(&supported, cudaDevAttrCooperativeLaunch, 0);
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocksPerSm, gridSum, threads, 0);
    int blocks = prop.multiProcessorCount * blocksPerSm < 12 ? prop.multiProcessorCount * blocksPerSm : 12;
    int size = n;
    void *args[] = {(void *)&data, (void *)&size, (void *)&partial, (void *)&out};
    cudaError_t err = cudaLaunchCooperativeKernel((void *)gridSum, dim3(blocks), dim3(threads), args, 0, NULL);
    cudaDeviceSynchronize();
    ok = ok && supported && err == cudaSuccess && out[0] == expectedSum;

    err = cudaLaunchCooperativeKernel((void *)gridSum, dim3(100000), dim3(threads), args);
    printf("100000 blocks at once: %s\n", cudaGetErrorName(err));
    ok = ok && err == cudaErrorCooperativeLaunchTooLarge;

    cudaFree(data);
    cudaFree(out);
    cudaFree(partial);
    printf(ok ? "PASS\n" : "FAIL\n");
    return ok ? 0 : 1;
}
