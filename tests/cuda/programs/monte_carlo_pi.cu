// Pi by throwing darts: a random generator in every thread.
#include <cstdio>
#include <cmath>
#include <curand_kernel.h>

#define THREADS 128
#define BLOCKS 8
#define TRIALS 200

__global__ void setup_kernel(curandState *state, unsigned long seed)
{
    int id = threadIdx.x + blockIdx.x * blockDim.x;
    curand_init(seed, id, 0, &state[id]);
}

__global__ void count_hits(curandState *state, unsigned long long *total)
{
    int id = threadIdx.x + blockIdx.x * blockDim.x;
    curandState local = state[id];
    unsigned int hits = 0;
    for (int i = 0; i < TRIALS; i++) {
        float x = curand_uniform(&local);
        float y = curand_uniform(&local);
        if (x * x + y * y <= 1.0f) hits++;
    }
    state[id] = local;
    atomicAdd(total, (unsigned long long)hits);
}

__global__ void mean_and_variance(double *sums, int n)
{
    curandStatePhilox4_32_10_t state;
    curand_init(1234ULL, blockIdx.x * blockDim.x + threadIdx.x, 0, &state);
    double sum = 0, squares = 0;
    for (int i = 0; i < n; i++) {
        double z = curand_normal(&state);
        sum += z;
        squares += z * z;
    }
    atomicAdd(&sums[0], sum);
    atomicAdd(&sums[1], squares);
}

int main()
{
    curandState *states;
    unsigned long long *d_total, total = 0;
    cudaMalloc(&states, BLOCKS * THREADS * sizeof(curandState));
    cudaMalloc(&d_total, sizeof(unsigned long long));
    cudaMemset(d_total, 0, sizeof(unsigned long long));
    setup_kernel<<<BLOCKS, THREADS>>>(states, 42);
    count_hits<<<BLOCKS, THREADS>>>(states, d_total);
    cudaMemcpy(&total, d_total, sizeof(total), cudaMemcpyDeviceToHost);
    const double darts = (double)BLOCKS * THREADS * TRIALS;
    const double pi = 4.0 * total / darts;
    printf("pi is about %.4f\n", pi);

    double *d_sums, sums[2];
    cudaMalloc(&d_sums, sizeof(sums));
    cudaMemset(d_sums, 0, sizeof(sums));
    mean_and_variance<<<BLOCKS, THREADS>>>(d_sums, 64);
    cudaMemcpy(sums, d_sums, sizeof(sums), cudaMemcpyDeviceToHost);
    const double samples = BLOCKS * THREADS * 64.0;
    printf("normal: mean %.4f, variance %.4f\n", sums[0] / samples, sums[1] / samples);

    // Five standard deviations of each estimate.
    bool ok = fabs(pi - M_PI) < 5 * sqrt(M_PI * (4 - M_PI) / darts);
    ok = ok && fabs(sums[0] / samples) < 5 / sqrt(samples) && fabs(sums[1] / samples - 1) < 5 * sqrt(2 / samples);
    cudaFree(states);
    cudaFree(d_total);
    cudaFree(d_sums);
    printf(ok ? "PASS\n" : "FAIL\n");
    return 0;
}
