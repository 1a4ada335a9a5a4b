// Every kind of error, on purpose: a bad configuration, no memory, a bad pointer, a fault in a kernel that sticks.
#include <stdio.h>
#include <string.h>

__global__ void fine(int *p) { if (threadIdx.x == 0) *p = 1; }

__global__ void faulty(int *p) { p[1 << 28] = 1; }

int failures = 0;

#define EXPECT(call, error)                                                                                  \
    do {                                                                                                     \
        cudaError_t got = (call);                                                                            \
        printf("%-55s %s (%s)\n", #call, cudaGetErrorName(got), cudaGetErrorString(got));                    \
        if (got != (error)) failures++;                                                                      \
    } while (0)

int main()
{
    int *d = NULL, h = 0;
    EXPECT(cudaMalloc(&d, sizeof(int)), cudaSuccess);

    // An error of the launch itself is there at once, and gone when it has been read. The runtime of CUDA 13.0
    // calls a bad configuration an invalid value (seen on an H100), those before it an invalid configuration.
    fine<<<1, 2048>>>(d);
    cudaError_t bad = cudaPeekAtLastError();
    if (bad != cudaErrorInvalidValue && bad != cudaErrorInvalidConfiguration) failures++;
    EXPECT(cudaPeekAtLastError(), bad);
    EXPECT(cudaGetLastError(), bad);
    EXPECT(cudaGetLastError(), cudaSuccess);
    fine<<<0, 1>>>(d);
    EXPECT(cudaGetLastError(), bad);
    fine<<<dim3(1, 70000), 1>>>(d);
    EXPECT(cudaGetLastError(), bad);
    fine<<<1, 32, 100 * 1024>>>(d);
    EXPECT(cudaGetLastError(), cudaErrorInvalidValue);
    EXPECT(cudaFuncSetAttribute(fine, cudaFuncAttributeMaxDynamicSharedMemorySize, 100 * 1024), cudaSuccess);
    fine<<<1, 32, 100 * 1024>>>(d);
    EXPECT(cudaGetLastError(), cudaSuccess);
    EXPECT(cudaFuncSetAttribute(fine, cudaFuncAttributeMaxDynamicSharedMemorySize, 300 * 1024), cudaErrorInvalidValue);
    cudaGetLastError();

    // Memory.
    void *huge = NULL;
    EXPECT(cudaMalloc(&huge, (size_t)1 << 50), cudaErrorMemoryAllocation);
    EXPECT(cudaGetLastError(), cudaErrorMemoryAllocation);
    EXPECT(cudaMemcpy(d, &h, sizeof(int), cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
    EXPECT(cudaMemcpy(d, &h, 1000 * sizeof(int), cudaMemcpyHostToDevice), cudaErrorInvalidValue);
    EXPECT(cudaMemset(NULL, 0, 4), cudaErrorInvalidValue);
    int *twice;
    EXPECT(cudaMalloc(&twice, 16), cudaSuccess);
    EXPECT(cudaFree(twice), cudaSuccess);
    EXPECT(cudaFree(twice), cudaErrorInvalidValue);
    EXPECT(cudaFree(NULL), cudaSuccess);

    // Devices, streams and events.
    EXPECT(cudaSetDevice(7), cudaErrorInvalidDevice);
    cudaEvent_t start, stop;
    float ms;
    cudaEventCreate(&start);
    cudaEventCreate(&stop);
    EXPECT(cudaEventElapsedTime(&ms, start, stop), cudaErrorInvalidResourceHandle);
    EXPECT(cudaGetLastError(), cudaErrorInvalidResourceHandle);

    // A fault inside a kernel shows when the host waits, and every call fails from then on.
    faulty<<<1, 1>>>(d);
    EXPECT(cudaGetLastError(), cudaSuccess);
    EXPECT(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
    EXPECT(cudaMemcpy(&h, d, sizeof(int), cudaMemcpyDeviceToHost), cudaErrorIllegalAddress);
    EXPECT(cudaGetLastError(), cudaErrorIllegalAddress);
    EXPECT(cudaGetLastError(), cudaSuccess);
    EXPECT(cudaFree(d), cudaErrorIllegalAddress);
    EXPECT(cudaPeekAtLastError(), cudaErrorIllegalAddress);

    if (strcmp(cudaGetErrorString((cudaError_t)12345), "unrecognized error code") != 0) failures++;
    printf(failures ? "%d differ from CUDA\nFAIL\n" : "PASS\n", failures);
    return failures != 0;
}
