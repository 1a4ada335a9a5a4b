// The ladder of transposes: copy, naive, through shared memory, and padded against bank conflicts.
#include <assert.h>
#include <stdio.h>

inline cudaError_t checkCuda(cudaError_t result)
{
    if (result != cudaSuccess) {
        fprintf(stderr, "CUDA Runtime Error: %s\n", cudaGetErrorString(result));
        assert(result == cudaSuccess);
    }
    return result;
}

const int TILE_DIM = 32;
const int BLOCK_ROWS = 8;

__global__ void copy(float *odata, const float *idata)
{
    int x = blockIdx.x * TILE_DIM + threadIdx.x;
    int y = blockIdx.y * TILE_DIM + threadIdx.y;
    int width = gridDim.x * TILE_DIM;
    for (int j = 0; j < TILE_DIM; j += BLOCK_ROWS)
        odata[(y + j) * width + x] = idata[(y + j) * width + x];
}

__global__ void transposeNaive(float *odata, const float *idata)
{
    int x = blockIdx.x * TILE_DIM + threadIdx.x;
    int y = blockIdx.y * TILE_DIM + threadIdx.y;
    int width = gridDim.x * TILE_DIM;
    for (int j = 0; j < TILE_DIM; j += BLOCK_ROWS)
        odata[x * width + (y + j)] = idata[(y + j) * width + x];
}

template <int PADDING>
__global__ void transposeShared(float *odata, const float *idata)
{
    __shared__ float tile[TILE_DIM][TILE_DIM + PADDING];
    int x = blockIdx.x * TILE_DIM + threadIdx.x;
    int y = blockIdx.y * TILE_DIM + threadIdx.y;
    int width = gridDim.x * TILE_DIM;
    for (int j = 0; j < TILE_DIM; j += BLOCK_ROWS)
        tile[threadIdx.y + j][threadIdx.x] = idata[(y + j) * width + x];
    __syncthreads();
    x = blockIdx.y * TILE_DIM + threadIdx.x;
    y = blockIdx.x * TILE_DIM + threadIdx.y;
    for (int j = 0; j < TILE_DIM; j += BLOCK_ROWS)
        odata[(y + j) * width + x] = tile[threadIdx.x][threadIdx.y + j];
}

int errors(const float *ref, const float *res, int n)
{
    int wrong = 0;
    for (int i = 0; i < n; i++)
        if (res[i] != ref[i]) wrong++;
    return wrong;
}

int main()
{
    const int nx = 128, ny = 128;
    const int mem_size = nx * ny * sizeof(float);
    dim3 dimGrid(nx / TILE_DIM, ny / TILE_DIM, 1), dimBlock(TILE_DIM, BLOCK_ROWS, 1);

    cudaDeviceProp prop;
    checkCuda(cudaGetDeviceProperties(&prop, 0));
    printf("Device: %s (%d.%d), %d multiprocessors\n", prop.name, prop.major, prop.minor, prop.multiProcessorCount);

    float *h_idata = (float *)malloc(mem_size), *h_odata = (float *)malloc(mem_size), *gold = (float *)malloc(mem_size);
    float *d_idata, *d_odata;
    checkCuda(cudaMalloc(&d_idata, mem_size));
    checkCuda(cudaMalloc(&d_odata, mem_size));
    for (int j = 0; j < ny; j++)
        for (int i = 0; i < nx; i++) {
            h_idata[j * nx + i] = j * nx + i;
            gold[i * ny + j] = j * nx + i;
        }
    checkCuda(cudaMemcpy(d_idata, h_idata, mem_size, cudaMemcpyHostToDevice));

    void (*kernels[])(float *, const float *) = {copy, transposeNaive, transposeShared<0>, transposeShared<1>};
    const char *names[] = {"copy", "naive", "shared", "padded"};
    int failed = 0;
    for (int k = 0; k < 4; k++) {
        checkCuda(cudaMemset(d_odata, 0, mem_size));
        kernels[k]<<<dimGrid, dimBlock>>>(d_odata, d_idata);
        checkCuda(cudaGetLastError());
        checkCuda(cudaMemcpy(h_odata, d_odata, mem_size, cudaMemcpyDeviceToHost));
        int wrong = errors(k == 0 ? h_idata : gold, h_odata, nx * ny);
        printf("%10s: %d wrong\n", names[k], wrong);
        failed += wrong;
    }
    checkCuda(cudaFree(d_odata));
    checkCuda(cudaFree(d_idata));
    free(h_idata);
    free(h_odata);
    free(gold);
    puts(failed ? "FAIL" : "PASS");
    return failed != 0;
}
