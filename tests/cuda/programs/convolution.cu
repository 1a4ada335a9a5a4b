// Two-dimensional convolution with the kernel in a header of its own, and the helpers of the CUDA samples.
#include <stdio.h>
#include <cuda_runtime.h>
#include <helper_cuda.h>
#include "convolution.h"

int main(int argc, char **argv)
{
    int devID = findCudaDevice(argc, (const char **)argv);
    const int width = 75, height = 50, R = 2;
    const size_t bytes = width * height * sizeof(float);
    float *h_N, *h_P, *d_N, *d_P, filter[2 * MAX_RADIUS + 1][2 * MAX_RADIUS + 1] = {};
    checkCudaErrors(cudaMallocHost(&h_N, bytes));
    checkCudaErrors(cudaMallocHost(&h_P, bytes));
    checkCudaErrors(cudaMalloc(&d_N, bytes));
    checkCudaErrors(cudaMalloc(&d_P, bytes));
    for (int i = 0; i < width * height; i++) h_N[i] = (float)((i * 11) % 23);
    for (int r = 0; r <= 2 * R; r++)
        for (int c = 0; c <= 2 * R; c++) filter[r][c] = (float)(r + 2 * c);
    checkCudaErrors(cudaMemcpyToSymbol(F_c, filter, sizeof(filter)));
    checkCudaErrors(cudaMemcpy(d_N, h_N, bytes, cudaMemcpyHostToDevice));
    runConvolution<R>(d_N, d_P, width, height);
    getLastCudaError("convolution failed");
    checkCudaErrors(cudaMemcpy(h_P, d_P, bytes, cudaMemcpyDeviceToHost));

    int wrong = 0;
    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x++) {
            float expected = 0;
            for (int r = -R; r <= R; r++)
                for (int c = -R; c <= R; c++)
                    if (x + c >= 0 && x + c < width && y + r >= 0 && y + r < height)
                        expected += filter[r + R][c + R] * h_N[(y + r) * width + x + c];
            if (expected != h_P[y * width + x]) wrong++;
        }
    checkCudaErrors(cudaFreeHost(h_N));
    checkCudaErrors(cudaFreeHost(h_P));
    checkCudaErrors(cudaFree(d_N));
    checkCudaErrors(cudaFree(d_P));
    printf("device %d, %d wrong\n%s\n", devID, wrong, wrong ? "FAIL" : "PASS");
    return wrong != 0;
}
