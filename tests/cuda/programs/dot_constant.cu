// A weighted dot product: weights in constant memory, doubles added with a compare-and-swap loop, a function pointer.
#include <cstdio>
#include <cmath>
#include <cstdlib>

#define imin(a, b) (a < b ? a : b)

const int N = 33 * 1024;
const int threadsPerBlock = 256;
const int blocksPerGrid = imin(32, (N + threadsPerBlock - 1) / threadsPerBlock);

__constant__ double weights[8];
__constant__ double scale = 0.5;

__device__ double atomicAddDouble(double *address, double val)
{
    unsigned long long int *address_as_ull = (unsigned long long int *)address;
    unsigned long long int old = *address_as_ull, assumed;
    do {
        assumed = old;
        old = atomicCAS(address_as_ull, assumed, __double_as_longlong(val + __longlong_as_double(assumed)));
    } while (assumed != old);
    return __longlong_as_double(old);
}

__global__ void dot(double *a, double *b, double *c)
{
    __shared__ double cache[threadsPerBlock];
    int tid = threadIdx.x + blockIdx.x * blockDim.x;
    int cacheIndex = threadIdx.x;

    double temp = 0;
    while (tid < N) {
        temp += weights[tid % 8] * a[tid] * b[tid];
        tid += blockDim.x * gridDim.x;
    }
    cache[cacheIndex] = temp;
    __syncthreads();

    int i = blockDim.x / 2;
    while (i != 0) {
        if (cacheIndex < i)
            cache[cacheIndex] += cache[cacheIndex + i];
        __syncthreads();
        i /= 2;
    }
    if (cacheIndex == 0)
        atomicAddDouble(c, cache[0] * scale);
}

int main(void)
{
    double *a = (double *)malloc(N * sizeof(double)), *b = (double *)malloc(N * sizeof(double));
    double *dev_a, *dev_b, *dev_c, c, expected = 0;
    double host_weights[8];
    for (int i = 0; i < 8; i++) host_weights[i] = 1.0 / (1 << i);
    for (int i = 0; i < N; i++) {
        a[i] = i % 100;
        b[i] = (i * 2) % 50;
        expected += 0.5 * host_weights[i % 8] * a[i] * b[i];
    }
    cudaMalloc((void **)&dev_a, N * sizeof(double));
    cudaMalloc((void **)&dev_b, N * sizeof(double));
    cudaMalloc((void **)&dev_c, sizeof(double));
    cudaMemcpy(dev_a, a, N * sizeof(double), cudaMemcpyHostToDevice);
    cudaMemcpy(dev_b, b, N * sizeof(double), cudaMemcpyHostToDevice);
    cudaMemset(dev_c, 0, sizeof(double));
    cudaMemcpyToSymbol(weights, host_weights, sizeof(host_weights));

    dot<<<blocksPerGrid, threadsPerBlock>>>(dev_a, dev_b, dev_c);

    cudaMemcpy(&c, dev_c, sizeof(double), cudaMemcpyDeviceToHost);
    printf("Does GPU value %.6g = %.6g?\n", c, expected);
    cudaFree(dev_a);
    cudaFree(dev_b);
    cudaFree(dev_c);
    free(a);
    free(b);
    puts(fabs(c - expected) < 1e-9 * expected ? "PASS" : "FAIL");
}
