// Softmax, normalisation, attention and losses, as public kernel collections write them.
#include <cuda_fp16.h>
#include <cuda_bf16.h>
#include <math.h>

__global__ void softmax_rows(const float* input, float* output, int rows, int cols) {
    extern __shared__ float buffer[];
    int row = blockIdx.x, tid = threadIdx.x;
    const float* x = input + row * cols;
    float maxval = -INFINITY;
    for (int i = tid; i < cols; i += blockDim.x) maxval = fmaxf(maxval, x[i]);
    buffer[tid] = maxval;
    __syncthreads();
    for (int s = blockDim.x / 2; s > 0; s >>= 1) {
        if (tid < s) buffer[tid] = fmaxf(buffer[tid], buffer[tid + s]);
        __syncthreads();
    }
    maxval = buffer[0];
    __syncthreads();
    float sum = 0.f;
    for (int i = tid; i < cols; i += blockDim.x) sum += __expf(x[i] - maxval);
    buffer[tid] = sum;
    __syncthreads();
    for (int s = blockDim.x / 2; s > 0; s >>= 1) {
        if (tid < s) buffer[tid] += buffer[tid + s];
        __syncthreads();
    }
    sum = buffer[0];
    for (int i = tid; i < cols; i += blockDim.x) output[row * cols + i] = __expf(x[i] - maxval) / sum;
}

__global__ void softmax_online_warp(const float* x, float* y, int rows, int cols) {
    int row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (row >= rows) return;
    float m = -INFINITY, s = 0.0f;
    for (int i = lane; i < cols; i += 32) {
        float v = x[row * cols + i], old = m;
        m = fmaxf(m, v);
        s = s * expf(old - m) + expf(v - m);
    }
    for (int d = 16; d > 0; d >>= 1) {
        float m2 = __shfl_xor_sync(0xffffffff, m, d), s2 = __shfl_xor_sync(0xffffffff, s, d);
        float top = fmaxf(m, m2);
        s = (m == -INFINITY ? 0.f : s * expf(m - top)) + (m2 == -INFINITY ? 0.f : s2 * expf(m2 - top));
        m = top;
    }
    for (int i = lane; i < cols; i += 32) y[row * cols + i] = expf(x[row * cols + i] - m) / s;
}

__global__ void layernorm_forward(float* out, float* mean, float* rstd, const float* inp, const float* weight, const float* bias, int N, int C) {
    int idx = blockIdx.x * blockDim.x + threadIdx.x;
    float eps = 1e-5f;
    if (idx < N) {
        const float* x = inp + idx * C;
        float m = 0.0f;
        for (int i = 0; i < C; i++) m += x[i];
        m = m / C;
        float v = 0.0f;
        for (int i = 0; i < C; i++) {
            float xshift = x[i] - m;
            v += xshift * xshift;
        }
        v = v / C;
        float s = 1.0f / sqrtf(v + eps);
        for (int i = 0; i < C; i++) out[idx * C + i] = (s * (x[i] - m)) * weight[i] + bias[i];
        mean[idx] = m;
        rstd[idx] = s;
    }
}

__global__ void rmsnorm(const float* __restrict__ x, const float* __restrict__ gamma, float* __restrict__ y, int dim, float eps) {
    __shared__ float total;
    if (threadIdx.x == 0) total = 0.0f;
    __syncthreads();
    float partial = 0;
    for (int i = threadIdx.x; i < dim; i += blockDim.x) {
        float v = __ldg(&x[blockIdx.x * dim + i]);
        partial += v * v;
    }
    atomicAdd(&total, partial);
    __syncthreads();
    float scale = rsqrtf(total / dim + eps);
    for (int i = threadIdx.x; i < dim; i += blockDim.x) y[blockIdx.x * dim + i] = x[blockIdx.x * dim + i] * scale * gamma[i];
}

__global__ void cross_entropy(const float* logits, const int* labels, float* loss, int n, int c) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float top = -1e30f, sum = 0;
    for (int j = 0; j < c; ++j) top = max(top, logits[i * c + j]);
    for (int j = 0; j < c; ++j) sum += exp(logits[i * c + j] - top);
    atomicAdd(loss, (log(sum) + top - logits[i * c + labels[i]]) / n);
}

// One block a query row; online softmax over keys.
template <int D>
__global__ void attention_row(const float* Q, const float* K, const float* V, float* O, int n, float scale) {
    __shared__ float q[D];
    __shared__ float score;
    int row = blockIdx.x, d = threadIdx.x;
    q[d] = Q[row * D + d];
    float m = -INFINITY, l = 0.0f, acc = 0.0f;
    for (int j = 0; j < n; ++j) {
        __syncthreads();
        if (d == 0) {
            float dot = 0;
            for (int t = 0; t < D; ++t) dot += q[t] * K[j * D + t];
            score = dot * scale;
        }
        __syncthreads();
        float old = m;
        m = fmaxf(m, score);
        float p = __expf(score - m), correction = __expf(old - m);
        l = l * correction + p;
        acc = acc * correction + p * V[j * D + d];
    }
    O[row * D + d] = acc / l;
}

__global__ void half_axpy(int n, half a, const half* x, half* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = __hadd(__hmul(a, x[i]), y[i]);
}

__global__ void half2_add(const half2* a, const half2* b, half2* c, int n2) {
    int i = threadIdx.x + blockIdx.x * blockDim.x;
    if (i < n2) c[i] = __hadd2(a[i], b[i]);
}

__global__ void bf16_to_float(const __nv_bfloat16* in, float* out, int n) {
    int i = threadIdx.x + blockIdx.x * blockDim.x;
    if (i < n) out[i] = __bfloat162float(in[i]) * 2.0f;
}

__global__ void rope(float* x, int tokens, int dim) {
    int t = blockIdx.x, i = threadIdx.x;
    if (2 * i + 1 < dim && t < tokens) {
        float angle = t * powf(10000.0f, -2.0f * i / dim), s, c;
        sincosf(angle, &s, &c);
        float2* pair = reinterpret_cast<float2*>(x + t * dim) + i;
        float2 v = *pair;
        *pair = make_float2(v.x * c - v.y * s, v.x * s + v.y * c);
    }
}

__global__ void int8_matmul(const char* A, const char* B, int* C, int n) {
    int r = blockIdx.y * blockDim.y + threadIdx.y, c = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= n || c >= n) return;
    int sum = 0;
    for (int k = 0; k < n; k += 4) {
        int a = *reinterpret_cast<const int*>(A + r * n + k);
        int b = *reinterpret_cast<const int*>(B + c * n + k);
        sum = __dp4a(a, b, sum);
    }
    C[r * n + c] = sum;
}

__global__ void embedding(const int* tokens, const float* wte, const float* wpe, float* out, int T, int C) {
    int idx = blockIdx.x * blockDim.x + threadIdx.x;
    if (idx < T * C) {
        int t = idx / C, c = idx % C;
        out[idx] = wte[tokens[t] * C + c] + wpe[t * C + c];
    }
}
