// cuBLAS in column-major order, pitched memory, and several host threads that share the device.
#include <cstdio>
#include <thread>
#include <vector>
#include <cublas_v2.h>

__global__ void addToRows(float *data, size_t pitch, int width, int height, float value)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < width && y < height) {
        float *row = (float *)((char *)data + y * pitch);
        row[x] += value + y;
    }
}

void work(int id, bool *ok)
{
    const int width = 33 + id, height = 9;
    std::vector<float> image(width * height, 1.0f);
    float *d;
    size_t pitch;
    cudaMallocPitch(&d, &pitch, width * sizeof(float), height);
    cudaMemcpy2D(d, pitch, image.data(), width * sizeof(float), width * sizeof(float), height, cudaMemcpyHostToDevice);
    addToRows<<<dim3((width + 15) / 16, (height + 7) / 8), dim3(16, 8)>>>(d, pitch, width, height, (float)id);
    cudaMemcpy2D(image.data(), width * sizeof(float), d, pitch, width * sizeof(float), height, cudaMemcpyDeviceToHost);
    cudaFree(d);
    *ok = pitch >= width * sizeof(float);
    for (int i = 0; i < width * height; i++) *ok = *ok && image[i] == 1.0f + id + i / width;
}

int main()
{
    bool results[3];
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; i++) threads.emplace_back(work, i, &results[i]);
    for (auto &t : threads) t.join();
    bool ok = results[0] && results[1] && results[2];

    const int m = 5, n = 4, k = 3;
    float A[m * k], B[k * n], C[m * n], alpha = 2.0f, beta = 1.0f;  // column-major
    for (int i = 0; i < m * k; i++) A[i] = i;
    for (int i = 0; i < k * n; i++) B[i] = i % 4;
    for (int i = 0; i < m * n; i++) C[i] = 1;
    float *d_A, *d_B, *d_C;
    cudaMalloc(&d_A, sizeof(A));
    cudaMalloc(&d_B, sizeof(B));
    cudaMalloc(&d_C, sizeof(C));
    cublasHandle_t handle;
    if (cublasCreate(&handle) != CUBLAS_STATUS_SUCCESS) return 1;
    cublasSetMatrix(m, k, sizeof(float), A, m, d_A, m);
    cublasSetMatrix(k, n, sizeof(float), B, k, d_B, k);
    cudaMemcpy(d_C, C, sizeof(C), cudaMemcpyHostToDevice);
    cublasStatus_t status = cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, m, n, k, &alpha, d_A, m, d_B, k, &beta, d_C, m);
    ok = ok && status == CUBLAS_STATUS_SUCCESS;
    cudaMemcpy(C, d_C, sizeof(C), cudaMemcpyDeviceToHost);
    for (int row = 0; row < m; row++)
        for (int col = 0; col < n; col++) {
            float expected = 1;
            for (int l = 0; l < k; l++) expected += 2 * A[l * m + row] * B[col * k + l];
            ok = ok && C[col * m + row] == expected;
        }
    float dot;
    cublasSdot(handle, k, d_B, 1, d_B + k, 1, &dot);
    ok = ok && dot == B[0] * B[3] + B[1] * B[4] + B[2] * B[5];
    cublasDestroy(handle);
    cudaFree(d_A);
    cudaFree(d_B);
    cudaFree(d_C);
    printf(ok ? "PASS\n" : "FAIL\n");
    return 0;
}
