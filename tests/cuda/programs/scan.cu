// Inclusive scan of any length: Kogge-Stone in each block, the sums scanned again, then added.
#include <cassert>
#include <cstdio>
#include <vector>

#define SECTION_SIZE 128

inline void gpuAssert(cudaError_t code, const char *file, int line, bool abort = true)
{
    if (code != cudaSuccess) {
        fprintf(stderr, "GPUassert: %s %s %d\n", cudaGetErrorString(code), file, line);
        if (abort) exit(code);
    }
}
#define gpuErrchk(ans) { gpuAssert((ans), __FILE__, __LINE__); }

__global__ void Kogge_Stone_scan_kernel(int *X, int *Y, int *sums, int n)
{
    __shared__ int XY[2][SECTION_SIZE];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int from = 0, to = 1;
    XY[from][threadIdx.x] = i < n ? X[i] : 0;
    for (int stride = 1; stride < blockDim.x; stride *= 2) {
        __syncthreads();
        int value = XY[from][threadIdx.x];
        if (threadIdx.x >= stride) value += XY[from][threadIdx.x - stride];
        XY[to][threadIdx.x] = value;
        int t = from;
        from = to;
        to = t;
    }
    if (i < n) Y[i] = XY[from][threadIdx.x];
    if (sums != nullptr && threadIdx.x == blockDim.x - 1) sums[blockIdx.x] = XY[from][threadIdx.x];
}

__global__ void add_block_sums(int *Y, const int *sums, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (blockIdx.x > 0 && i < n) Y[i] += sums[blockIdx.x - 1];
}

void scan(int *d_in, int *d_out, int n)
{
    int blocks = (n + SECTION_SIZE - 1) / SECTION_SIZE;
    if (blocks == 1) {
        Kogge_Stone_scan_kernel<<<1, SECTION_SIZE>>>(d_in, d_out, NULL, n);
        return;
    }
    int *d_sums, *d_scanned;
    gpuErrchk(cudaMalloc(&d_sums, blocks * sizeof(int)));
    gpuErrchk(cudaMalloc(&d_scanned, blocks * sizeof(int)));
    Kogge_Stone_scan_kernel<<<blocks, SECTION_SIZE>>>(d_in, d_out, d_sums, n);
    gpuErrchk(cudaPeekAtLastError());
    scan(d_sums, d_scanned, blocks);
    add_block_sums<<<blocks, SECTION_SIZE>>>(d_out, d_scanned, n);
    gpuErrchk(cudaDeviceSynchronize());
    gpuErrchk(cudaFree(d_sums));
    gpuErrchk(cudaFree(d_scanned));
}

int main()
{
    const int n = 20000;
    std::vector<int> input(n), output(n);
    for (int i = 0; i < n; i++) input[i] = (i * 31 + 7) % 10 - 3;
    int *d_in, *d_out;
    gpuErrchk(cudaMalloc(&d_in, n * sizeof(int)));
    gpuErrchk(cudaMalloc(&d_out, n * sizeof(int)));
    gpuErrchk(cudaMemcpy(d_in, input.data(), n * sizeof(int), cudaMemcpyHostToDevice));
    scan(d_in, d_out, n);
    gpuErrchk(cudaMemcpy(&output[0], d_out, n * sizeof(int), cudaMemcpyDeviceToHost));
    int running = 0;
    for (int i = 0; i < n; i++) {
        running += input[i];
        assert(output[i] == running);
    }
    cudaFree(d_in);
    cudaFree(d_out);
    printf("PASS\n");
    return 0;
}
