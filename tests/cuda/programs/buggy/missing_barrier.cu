// A tile that is overwritten while others still read it: the second barrier of the loop is missing.
#include <cstdio>
#include <cstdlib>
#include <cmath>

const int TILE = 16;
const int WIDTH = 96;

__global__ void matMulTiled(const float *M, const float *N, float *P, int width)
{
    __shared__ float Mds[TILE][TILE];
    __shared__ float Nds[TILE][TILE];

    int bx = blockIdx.x, by = blockIdx.y;
    int tx = threadIdx.x, ty = threadIdx.y;
    int row = by * TILE + ty;
    int col = bx * TILE + tx;

    float value = 0.0f;
    for (int ph = 0; ph < (width + TILE - 1) / TILE; ++ph) {
        Mds[ty][tx] = (row < width && ph * TILE + tx < width) ? M[row * width + ph * TILE + tx] : 0.0f;
        Nds[ty][tx] = (ph * TILE + ty < width && col < width) ? N[(ph * TILE + ty) * width + col] : 0.0f;
        __syncthreads();
#pragma unroll
        for (int k = 0; k < TILE; ++k)
            value += Mds[ty][k] * Nds[k][tx];
    }
    if (row < width && col < width)
        P[row * width + col] = value;
}

void matMulHost(const float *M, const float *N, float *P, int width)
{
    for (int i = 0; i < width; ++i)
        for (int j = 0; j < width; ++j) {
            float sum = 0;
            for (int k = 0; k < width; ++k)
                sum += M[i * width + k] * N[k * width + j];
            P[i * width + j] = sum;
        }
}

int main(int argc, char **argv)
{
    int width = argc > 1 ? atoi(argv[1]) : WIDTH;
    size_t bytes = sizeof(float) * width * width;
    float *M = new float[width * width], *N = new float[width * width];
    float *P = new float[width * width], *reference = new float[width * width];
    srand(2024);
    for (int i = 0; i < width * width; ++i) {
        M[i] = (float)(rand() % 100) / 100;
        N[i] = (float)(rand() % 100) / 100;
    }

    float *d_M, *d_N, *d_P;
    cudaMalloc(&d_M, bytes);
    cudaMalloc(&d_N, bytes);
    cudaMalloc(&d_P, bytes);
    cudaMemcpy(d_M, M, bytes, cudaMemcpyHostToDevice);
    cudaMemcpy(d_N, N, bytes, cudaMemcpyHostToDevice);

    cudaEvent_t start, stop;
    cudaEventCreate(&start);
    cudaEventCreate(&stop);

    dim3 dimBlock(TILE, TILE, 1);
    dim3 dimGrid(ceil(width / (float)TILE), ceil(width / (float)TILE), 1);
    cudaEventRecord(start);
    matMulTiled<<<dimGrid, dimBlock>>>(d_M, d_N, d_P, width);
    cudaEventRecord(stop);
    cudaEventSynchronize(stop);
    float ms = 0;
    cudaEventElapsedTime(&ms, start, stop);
    printf("width %d: %.3f ms, %.2f GFLOP/s\n", width, ms, 2.0 * width * width * width / ms / 1e6);

    cudaMemcpy(P, d_P, bytes, cudaMemcpyDeviceToHost);
    matMulHost(M, N, reference, width);
    bool ok = ms > 0;
    for (int i = 0; i < width * width; ++i)
        if (std::fabs(P[i] - reference[i]) > 1e-3f * std::fabs(reference[i])) ok = false;

    cudaEventDestroy(start);
    cudaEventDestroy(stop);
    cudaFree(d_M);
    cudaFree(d_N);
    cudaFree(d_P);
    delete[] M;
    delete[] N;
    delete[] P;
    delete[] reference;
    printf("%s\n", ok ? "PASS" : "FAIL");
    return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}
