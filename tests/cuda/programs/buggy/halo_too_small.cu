// The array in shared memory has no room for the halo on its right.
#include <stdio.h>
#include <algorithm>

using namespace std;

#define N 4096
#define RADIUS 3
#define BLOCK_SIZE 64

__global__ void stencil_1d(int *in, int *out)
{
    __shared__ int temp[BLOCK_SIZE + RADIUS];
    int gindex = threadIdx.x + blockIdx.x * blockDim.x + RADIUS;
    int lindex = threadIdx.x + RADIUS;

    // Read input elements into shared memory
    temp[lindex] = in[gindex];
    if (threadIdx.x < RADIUS) {
        temp[lindex - RADIUS] = in[gindex - RADIUS];
        temp[lindex + BLOCK_SIZE] = in[gindex + BLOCK_SIZE];
    }

    // Synchronize (ensure all the data is available)
    __syncthreads();

    // Apply the stencil
    int result = 0;
    for (int offset = -RADIUS; offset <= RADIUS; offset++)
        result += temp[lindex + offset];

    // Store the result
    out[gindex] = result;
}

void fill_ints(int *x, int n) { fill_n(x, n, 1); }

int main(void)
{
    int *in, *out;
    int *d_in, *d_out;
    int size = (N + 2 * RADIUS) * sizeof(int);

    in = (int *)malloc(size);
    fill_ints(in, N + 2 * RADIUS);
    out = (int *)malloc(size);
    fill_ints(out, N + 2 * RADIUS);
    in[100] = 5;

    cudaMalloc((void **)&d_in, size);
    cudaMalloc((void **)&d_out, size);
    cudaMemcpy(d_in, in, size, cudaMemcpyHostToDevice);
    cudaMemcpy(d_out, out, size, cudaMemcpyHostToDevice);

    stencil_1d<<<N / BLOCK_SIZE, BLOCK_SIZE>>>(d_in, d_out);

    cudaMemcpy(out, d_out, size, cudaMemcpyDeviceToHost);

    for (int i = RADIUS; i < N + RADIUS; i++) {
        int expected = 2 * RADIUS + 1 + (i >= 100 - RADIUS && i <= 100 + RADIUS ? 4 : 0);
        if (out[i] != expected) {
            printf("Element h_out[%d] == %d != %d\n", i, out[i], expected);
            return 1;
        }
    }

    free(in);
    free(out);
    cudaFree(d_in);
    cudaFree(d_out);
    printf("PASS\n");
    return 0;
}
