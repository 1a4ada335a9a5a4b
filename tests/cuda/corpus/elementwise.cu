// One thread an element, in the idioms of first chapters.
#include <cuda_runtime.h>
#include <stdio.h>
#define BLOCK 128
#define IDX (blockIdx.x * blockDim.x + threadIdx.x)

__global__ void add(const float *A, const float *B, float *C, int N) {
    int i = IDX;
    if (i < N) C[i] = A[i] + B[i];
}

__global__ void add_early_out(float* c, float* a, float* b, unsigned int n) {
    const unsigned int tid = threadIdx.x + blockIdx.x * blockDim.x;
    if (tid >= n) return;
    c[tid] = a[tid] + b[tid];
}

__global__ void add_strided(int n, float *x, float *y) {
    int index = blockIdx.x * blockDim.x + threadIdx.x;
    int stride = blockDim.x * gridDim.x;
    for (int i = index; i < n; i += stride)
        y[i] = x[i] + y[i];
}

extern "C" __global__ void saxpy(int n, float a, const float* __restrict__ x, float* __restrict__ y) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < (size_t)n; i += (size_t)blockDim.x * gridDim.x)
        y[i] = a * x[i] + y[i];
}

__global__ void relu(const float* input, float* output, int N) {
    int i = IDX;
    if (i < N) output[i] = fmaxf(0.0f, input[i]);
}

__device__ __forceinline__ float sigmoidf(float x) { return 1.0f / (1.0f + expf(-x)); }

__global__ void sigmoid(const float* __restrict__ X, float* __restrict__ Y, int N) {
    int i = IDX;
    if (i < N) Y[i] = sigmoidf(X[i]);
}

__global__ void gelu_tanh(const float* x, float* y, int n) {
    int i = IDX;
    if (i < n) {
        float v = x[i], cube = 0.044715f * v * v * v;
        y[i] = 0.5f * v * (1.0f + tanhf(0.7978845608f * (v + cube)));
    }
}

__global__ void __launch_bounds__(BLOCK * 2) silu(const float* x, float* y, int n) {
    int i = IDX;
    if (i < n) y[i] = x[i] * sigmoidf(x[i]);
}

template <typename T, int VEC>
__global__ void scale_vec(T* data, T factor, int n) {
    int base = IDX * VEC;
#pragma unroll
    for (int v = 0; v < VEC; ++v)
        if (base + v < n) data[base + v] *= factor;
}

__global__ void float4_copy(const float4* in, float4* out, int n4) {
    int i = IDX;
    if (i < n4) {
        float4 v = in[i];
        out[i] = make_float4(v.x, v.y, v.z, v.w);
    }
}

__global__ static void reverse_in_place(float* x, int n) {
    int i = IDX;
    if (i < n / 2) {
        float t = x[i];
        x[i] = x[n - 1 - i];
        x[n - 1 - i] = t;
    }
}

__constant__ float coefficients[4] = {1.0f, -2.0f, 0.5f, 0.25f};

__global__ void polynomial(const float* x, float* y, int n) {
    int i = IDX;
    if (i >= n) return;
    float r = coefficients[3];
#pragma unroll 3
    for (int k = 2; k >= 0; k--) r = r * x[i] + coefficients[k];
    y[i] = r;
}

__global__ void rgb_to_gray(const uchar3* rgb, unsigned char* gray, int width, int height) {
    int col = blockIdx.x * blockDim.x + threadIdx.x;
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    if (col < width && row < height) {
        uchar3 p = rgb[row * width + col];
        gray[row * width + col] = (unsigned char)((77 * p.x + 150 * p.y + 29 * p.z) >> 8);
    }
}
