// Bitonic sort, one launch a step, launched through a macro; timed by the host's clock.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <algorithm>
#include <random>

#define LAUNCH(kernel, grid, block, ...)            \
    do {                                            \
        kernel<<<(grid), (block)>>>(__VA_ARGS__);   \
        if (cudaGetLastError() != cudaSuccess) {    \
            fprintf(stderr, "launch failed\n");     \
            exit(1);                                \
        }                                           \
    } while (0)

template <typename T>
__device__ inline void swap_if(T &a, T &b, bool ascending)
{
    if ((a > b) == ascending) {
        T t = a;
        a = b;
        b = t;
    }
}

__global__ void bitonic_sort_step(float *dev_values, int j, int k)
{
    unsigned int i = threadIdx.x + blockDim.x * blockIdx.x;
    unsigned int ixj = i ^ j;
    if (ixj > i) swap_if(dev_values[i], dev_values[ixj], (i & k) == 0);
}

int main()
{
    const int threads = 128, blocks = 8, num = threads * blocks;
    float *values = (float *)malloc(num * sizeof(float)), *dev_values;
    std::mt19937 generator(7);
    std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
    for (int i = 0; i < num; i++) values[i] = uniform(generator);
    double sum = 0, sorted_sum = 0;
    for (int i = 0; i < num; i++) sum += values[i];

    cudaMalloc((void **)&dev_values, num * sizeof(float));
    cudaMemcpy(dev_values, values, num * sizeof(float), cudaMemcpyHostToDevice);
    auto start = std::chrono::high_resolution_clock::now();
    for (int k = 2; k <= num; k <<= 1)
        for (int j = k >> 1; j > 0; j = j >> 1)
            LAUNCH(bitonic_sort_step, blocks, threads, dev_values, j, k);
    cudaDeviceSynchronize();
    std::chrono::duration<double> elapsed = std::chrono::high_resolution_clock::now() - start;
    cudaMemcpy(values, dev_values, num * sizeof(float), cudaMemcpyDeviceToHost);
    cudaFree(dev_values);

    for (int i = 0; i < num; i++) sorted_sum += values[i];
    bool ok = std::is_sorted(values, values + num) && std::abs(sum - sorted_sum) < 1e-6 && elapsed.count() > 0;
    free(values);
    printf("%s\n", ok ? "PASS" : "FAIL");
    return 0;
}
