// Sparse matrix times vector, CSR, one thread a row and one warp a row.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

struct CSRMatrix {
    int rows;
    int *rowPtrs;
    int *colIdx;
    float *values;
};

__global__ void spmv_scalar(CSRMatrix A, const float *x, float *y)
{
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < A.rows) {
        float dot = 0;
        for (int k = A.rowPtrs[row]; k < A.rowPtrs[row + 1]; ++k)
            dot += A.values[k] * x[A.colIdx[k]];
        y[row] = dot;
    }
}

__global__ void spmv_vector(CSRMatrix A, const float *__restrict__ x, float *__restrict__ y)
{
    int warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    int lane = threadIdx.x & 31;
    if (warp >= A.rows) return;
    float dot = 0;
    for (int k = A.rowPtrs[warp] + lane; k < A.rowPtrs[warp + 1]; k += 32)
        dot += A.values[k] * __ldg(&x[A.colIdx[k]]);
#pragma unroll
    for (int d = 16; d >= 1; d >>= 1)
        dot += __shfl_xor_sync(0xffffffffu, dot, d);
    if (lane == 0) y[warp] = dot;
}

template <typename T>
T *toDevice(const std::vector<T> &v)
{
    T *p;
    if (cudaMalloc((void **)&p, v.size() * sizeof(T)) != cudaSuccess) abort();
    if (cudaMemcpy(p, v.data(), v.size() * sizeof(T), cudaMemcpyHostToDevice) != cudaSuccess) abort();
    return p;
}

int main()
{
    const int rows = 500, cols = 400;
    std::vector<int> rowPtrs(1, 0), colIdx;
    std::vector<float> values, x(cols), expected(rows);
    for (int j = 0; j < cols; ++j) x[j] = 1.0f / (1 + j % 17);
    for (int i = 0; i < rows; ++i) {
        for (int k = 0; k < (i * i) % 41; ++k) {
            colIdx.push_back((i * 13 + k * 29) % cols);
            values.push_back((float)((i + k) % 5) - 2);
            expected[i] += values.back() * x[colIdx.back()];
        }
        rowPtrs.push_back((int)colIdx.size());
    }
    CSRMatrix A = {rows, toDevice(rowPtrs), toDevice(colIdx), toDevice(values)};
    float *d_x = toDevice(x), *d_y;
    cudaMalloc(&d_y, rows * sizeof(float));

    std::vector<float> y(rows);
    bool ok = true;
    for (int variant = 0; variant < 2; ++variant) {
        cudaMemset(d_y, 0xff, rows * sizeof(float));
        if (variant == 0) spmv_scalar<<<(rows + 127) / 128, 128>>>(A, d_x, d_y);
        if (variant == 1) spmv_vector<<<(rows * 32 + 127) / 128, 128>>>(A, d_x, d_y);
        cudaMemcpy(y.data(), d_y, rows * sizeof(float), cudaMemcpyDeviceToHost);
        for (int i = 0; i < rows; ++i) ok = ok && fabsf(y[i] - expected[i]) < 1e-4f;
    }
    cudaFree(A.rowPtrs);
    cudaFree(A.colIdx);
    cudaFree(A.values);
    cudaFree(d_x);
    cudaFree(d_y);
    puts(ok ? "PASS" : "FAIL");
    return 0;
}
