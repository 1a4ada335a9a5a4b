// Eight steps from a naive to a warp-tiled matrix product: C = A B, row-major n x n floats, n a multiple of 128.
// The algorithms and tile sizes are those of Simon Boehm, "How to Optimize a CUDA Matmul Kernel for cuBLAS-like
// Performance" (2022), whose times on several GPUs are published; the code is our own. benchmarks/cuda_model.py
// compares the published times with the model. STEP, a macro, chooses the step, so that each is compiled alone.

#if STEP == 1
// Step 1. Neighbouring threads take neighbouring rows: each request of A touches 32 lines.
__global__ void naive(const float* A, const float* B, float* C, int n)
{
    const int row = blockIdx.x * 32 + threadIdx.x, column = blockIdx.y * 32 + threadIdx.y;
    float sum = 0.0f;
    for (int k = 0; k < n; ++k) sum += A[row * n + k] * B[k * n + column];
    C[row * n + column] = sum;
}
#endif

#if STEP == 2
// Step 2. Neighbouring threads take neighbouring columns.
__global__ void coalesced(const float* A, const float* B, float* C, int n)
{
    const int row = blockIdx.x * 32 + threadIdx.x / 32, column = blockIdx.y * 32 + threadIdx.x % 32;
    float sum = 0.0f;
    for (int k = 0; k < n; ++k) sum += A[row * n + k] * B[k * n + column];
    C[row * n + column] = sum;
}
#endif

#if STEP == 3
// Step 3. Tiles of 32 x 32 in shared memory.
__global__ void shared_tiles(const float* A, const float* B, float* C, int n)
{
    __shared__ float a[32 * 32], b[32 * 32];
    const int x = threadIdx.x % 32, y = threadIdx.x / 32;
    A += blockIdx.x * 32 * n;
    B += blockIdx.y * 32;
    C += blockIdx.x * 32 * n + blockIdx.y * 32;
    float sum = 0.0f;
    for (int from = 0; from < n; from += 32) {
        a[y * 32 + x] = A[y * n + x];
        b[y * 32 + x] = B[y * n + x];
        __syncthreads();
        A += 32;
        B += 32 * n;
        for (int k = 0; k < 32; ++k) sum += a[y * 32 + k] * b[k * 32 + x];
        __syncthreads();
    }
    C[y * n + x] = sum;
}
#endif

#if STEP == 4
// Step 4. A thread computes a column of 8 outputs. Blocks of 512 threads, tiles of 64 x 64, 8 deep.
__global__ void column_of_outputs(const float* A, const float* B, float* C, int n)
{
    __shared__ float a[64 * 8], b[8 * 64];
    const int x = threadIdx.x % 64, y = threadIdx.x / 64;
    const int a_row = threadIdx.x / 8, a_column = threadIdx.x % 8;
    A += blockIdx.y * 64 * n;
    B += blockIdx.x * 64;
    C += blockIdx.y * 64 * n + blockIdx.x * 64;
    float sums[8] = {};
    for (int from = 0; from < n; from += 8) {
        a[a_row * 8 + a_column] = A[a_row * n + a_column];
        b[y * 64 + x] = B[y * n + x];
        __syncthreads();
        A += 8;
        B += 8 * n;
        for (int k = 0; k < 8; ++k) {
            const float right = b[k * 64 + x];
            for (int i = 0; i < 8; ++i) sums[i] += a[(y * 8 + i) * 8 + k] * right;
        }
        __syncthreads();
    }
    for (int i = 0; i < 8; ++i) C[(y * 8 + i) * n + x] = sums[i];
}
#endif

#if STEP == 5
// Step 5. A thread computes 8 x 8 outputs. Blocks of 256 threads, tiles of 128 x 128, 8 deep.
__global__ void __launch_bounds__(256) square_of_outputs(const float* A, const float* B, float* C, int n)
{
    __shared__ float a[128 * 8], b[8 * 128];
    const int x = threadIdx.x % 16, y = threadIdx.x / 16;
    const int a_row = threadIdx.x / 8, a_column = threadIdx.x % 8;
    const int b_row = threadIdx.x / 128, b_column = threadIdx.x % 128;
    A += blockIdx.y * 128 * n;
    B += blockIdx.x * 128;
    C += blockIdx.y * 128 * n + blockIdx.x * 128;
    float sums[8 * 8] = {}, left[8], right[8];
    for (int from = 0; from < n; from += 8) {
        for (int i = 0; i < 128; i += 32) a[(a_row + i) * 8 + a_column] = A[(a_row + i) * n + a_column];
        for (int i = 0; i < 8; i += 2) b[(b_row + i) * 128 + b_column] = B[(b_row + i) * n + b_column];
        __syncthreads();
        A += 8;
        B += 8 * n;
        for (int k = 0; k < 8; ++k) {
            for (int i = 0; i < 8; ++i) left[i] = a[(y * 8 + i) * 8 + k];
            for (int j = 0; j < 8; ++j) right[j] = b[k * 128 + x * 8 + j];
            for (int i = 0; i < 8; ++i) {
                for (int j = 0; j < 8; ++j) sums[i * 8 + j] += left[i] * right[j];
            }
        }
        __syncthreads();
    }
    for (int i = 0; i < 8; ++i) {
        for (int j = 0; j < 8; ++j) C[(y * 8 + i) * n + x * 8 + j] = sums[i * 8 + j];
    }
}
#endif

#if STEP >= 6
// Four floats at once, from and to addresses that are multiples of 16 bytes.
__device__ float4 four(const float* from) { return *reinterpret_cast<const float4*>(from); }
__device__ void put_four(float* to, float4 value) { *reinterpret_cast<float4*>(to) = value; }

// A tile of A, transposed on its way into shared memory, and a tile of B, by float4.
template <int M, int N, int K, int THREADS>
__device__ void load_tiles(const float* A, const float* B, float* a, float* b, int n)
{
    const int a_row = threadIdx.x / (K / 4), a_column = threadIdx.x % (K / 4) * 4;
    const int b_row = threadIdx.x / (N / 4), b_column = threadIdx.x % (N / 4) * 4;
    for (int i = 0; i + THREADS * 4 / K <= M; i += THREADS * 4 / K) {
        const float4 value = four(&A[(a_row + i) * n + a_column]);
        a[(a_column + 0) * M + a_row + i] = value.x;
        a[(a_column + 1) * M + a_row + i] = value.y;
        a[(a_column + 2) * M + a_row + i] = value.z;
        a[(a_column + 3) * M + a_row + i] = value.w;
    }
    for (int i = 0; i + THREADS * 4 / N <= K; i += THREADS * 4 / N) {
        put_four(&b[(b_row + i) * N + b_column], four(&B[(b_row + i) * n + b_column]));
    }
}
#endif

#if STEP == 6 || STEP == 7
// Steps 6 and 7. Loads and stores of four floats; A is transposed in shared memory. Step 7 has deeper tiles, the depth that was tuned.
constexpr int K = STEP == 6 ? 8 : 16;

__global__ void __launch_bounds__(256) wide_loads(const float* A, const float* B, float* C, int n)
{
    __shared__ float a[K * 128], b[K * 128];
    const int x = threadIdx.x % 16, y = threadIdx.x / 16;
    A += blockIdx.y * 128 * n;
    B += blockIdx.x * 128;
    C += blockIdx.y * 128 * n + blockIdx.x * 128;
    float sums[8 * 8] = {}, left[8], right[8];
    for (int from = 0; from < n; from += K) {
        load_tiles<128, 128, K, 256>(A, B, a, b, n);
        __syncthreads();
        A += K;
        B += K * n;
        for (int k = 0; k < K; ++k) {
            for (int i = 0; i < 8; ++i) left[i] = a[k * 128 + y * 8 + i];
            for (int j = 0; j < 8; ++j) right[j] = b[k * 128 + x * 8 + j];
            for (int i = 0; i < 8; ++i) {
                for (int j = 0; j < 8; ++j) sums[i * 8 + j] += left[i] * right[j];
            }
        }
        __syncthreads();
    }
    for (int i = 0; i < 8; ++i) {
        for (int j = 0; j < 8; j += 4) {
            const float* s = &sums[i * 8 + j];
            put_four(&C[(y * 8 + i) * n + x * 8 + j], make_float4(s[0], s[1], s[2], s[3]));
        }
    }
}
#endif

#if STEP == 8
// Step 8. Four warps, each with a tile of 64 x 64 that it walks in four columns of 16: a thread has 4 times 8 x 4 outputs.
__global__ void __launch_bounds__(128) warp_tiles(const float* A, const float* B, float* C, int n)
{
    __shared__ float a[16 * 128], b[16 * 128];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int warp_row = warp / 2 * 64, warp_column = warp % 2 * 64, row = lane / 4 * 8, column = lane % 4 * 4;
    A += blockIdx.y * 128 * n;
    B += blockIdx.x * 128;
    C += (blockIdx.y * 128 + warp_row) * n + blockIdx.x * 128 + warp_column;
    float sums[8 * 16] = {}, left[8], right[16];
    for (int from = 0; from < n; from += 16) {
        load_tiles<128, 128, 16, 128>(A, B, a, b, n);
        __syncthreads();
        A += 16;
        B += 16 * n;
        for (int k = 0; k < 16; ++k) {
            for (int i = 0; i < 8; ++i) left[i] = a[k * 128 + warp_row + row + i];
            for (int part = 0; part < 4; ++part) {
                for (int j = 0; j < 4; ++j) right[part * 4 + j] = b[k * 128 + warp_column + part * 16 + column + j];
            }
            for (int part = 0; part < 4; ++part) {
                for (int i = 0; i < 8; ++i) {
                    for (int j = 0; j < 4; ++j) sums[i * 16 + part * 4 + j] += left[i] * right[part * 4 + j];
                }
            }
        }
        __syncthreads();
    }
    for (int part = 0; part < 4; ++part) {
        for (int i = 0; i < 8; ++i) {
            const float* s = &sums[i * 16 + part * 4];
            put_four(&C[(row + i) * n + part * 16 + column], make_float4(s[0], s[1], s[2], s[3]));
        }
    }
}
#endif
