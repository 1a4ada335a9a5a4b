// What is legal and seldom seen: look-back scans, persistent blocks, locks, function pointers, templates of templates, views
// of one dynamic array, aggregates by value, memory from new.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cuda/atomic>

namespace cg = cooperative_groups;

// One word a block holds a flag (1: its own sum, 2: the sum of all up to it) and the sum.
__global__ void lookback_packed(const int* x, int* y, unsigned long long* states, int* ticket) {
    __shared__ int tile, carry, first_warp;
    if (threadIdx.x == 0) tile = atomicAdd(ticket, 1);
    __syncthreads();
    int i = tile * 64 + threadIdx.x, lane = threadIdx.x & 31;
    int v = x[i];
    for (int d = 1; d < 32; d <<= 1) {
        int below = __shfl_up_sync(~0u, v, d);
        if (lane >= d) v += below;
    }
    if (threadIdx.x == 31) first_warp = v;
    __syncthreads();
    if (threadIdx.x >= 32) v += first_warp;
    if (threadIdx.x == 63) {
        int before = 0;
        if (tile) {
            atomicExch(&states[tile], 1ull << 32 | (unsigned)v);
            for (int j = tile - 1;;) {
                unsigned long long state = atomicAdd(&states[j], 0ull);
                if (!(state >> 32)) continue;
                before += (int)(unsigned)state;
                if (state >> 32 == 2) break;
                --j;
            }
        }
        atomicExch(&states[tile], 2ull << 32 | (unsigned)(before + v));
        carry = before;
    }
    __syncthreads();
    y[i] = v + carry;
}

// The same with volatile flags and fences, of the time before cuda::atomic.
__global__ void lookback_volatile(const int* x, int* y, volatile int* flags, volatile int* own, volatile int* all, int* ticket) {
    __shared__ int s[64], tile, carry;
    if (threadIdx.x == 0) tile = atomicAdd(ticket, 1);
    __syncthreads();
    int i = tile * 64 + threadIdx.x;
    s[threadIdx.x] = x[i];
    __syncthreads();
    for (int d = 1; d < 64; d *= 2) {
        int below = threadIdx.x >= d ? s[threadIdx.x - d] : 0;
        __syncthreads();
        s[threadIdx.x] += below;
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        int before = 0;
        if (tile) {
            own[tile] = s[63];
            __threadfence();
            flags[tile] = 1;
            for (int j = tile - 1;; --j) {
                int flag;
                while ((flag = flags[j]) == 0) {}
                __threadfence();
                before += flag == 2 ? all[j] : own[j];
                if (flag == 2) break;
            }
        }
        all[tile] = before + s[63];
        __threadfence();
        flags[tile] = 2;
        carry = before;
    }
    __syncthreads();
    y[i] = s[threadIdx.x] + carry;
}

__global__ void persistent_squares(int* head, int n, const int* x, int* y) {
    __shared__ int base;
    while (true) {
        if (threadIdx.x == 0) base = atomicAdd(head, blockDim.x);
        __syncthreads();
        int mine = base;
        __syncthreads();
        if (mine >= n) break;
        int i = mine + threadIdx.x;
        if (i < n) y[i] = x[i] * x[i];
    }
}

__device__ int mutex = 0;
__global__ void counted_under_lock(volatile int* count) {
    if (threadIdx.x % 32 == 0) {
        while (atomicCAS(&mutex, 0, 1) != 0) {}
        __threadfence();
        *count = *count + 1;
        __threadfence();
        atomicExch(&mutex, 0);
    }
}

__global__ void message(int* data, int* flag, int* out) {
    cuda::atomic_ref<int, cuda::thread_scope_device> ready(*flag);
    if (threadIdx.x) return;
    if (blockIdx.x == 0) {
        *data = 42;
        ready.store(1, cuda::memory_order_release);
    } else {
        while (ready.load(cuda::memory_order_acquire) == 0) {}
        *out = *data;
    }
}

__global__ void split_dynamic(const float* x, double* out) {
    extern __shared__ __align__(16) unsigned char raw[];
    double* doubles = reinterpret_cast<double*>(raw);
    float4* vectors = reinterpret_cast<float4*>(doubles + blockDim.x);
    short* shorts = reinterpret_cast<short*>(vectors + blockDim.x);
    char* bytes = reinterpret_cast<char*>(shorts + blockDim.x);
    int t = threadIdx.x, mirror = blockDim.x - 1 - t;
    doubles[t] = x[t];
    vectors[t] = make_float4(t, t + 1, t + 2, t + 3);
    shorts[t] = -t;
    bytes[t] = t % 100;
    __syncthreads();
    out[t] = doubles[mirror] + vectors[mirror].w + shorts[mirror] + bytes[mirror];
}

template <class T>
struct Largest {
    static constexpr T identity = -1000000;
    __device__ T operator()(const T& a, const T& b) const { return a > b ? a : b; }
};

template <template <class> class Operation, int N>
__global__ void folded(const int* x, int* out) {
    __shared__ int s[32];
    Operation<int> operation;
    int v = Operation<int>::identity;
    for (int i = threadIdx.x; i < N; i += blockDim.x) v = operation(v, x[i]);
    for (int m = 16; m; m >>= 1) v = operation(v, __shfl_xor_sync(0xffffffffu, v, m));
    if (threadIdx.x % 32 == 0) s[threadIdx.x / 32] = v;
    __syncthreads();
    if (threadIdx.x < 32) {
        v = threadIdx.x < blockDim.x / 32 ? s[threadIdx.x] : Operation<int>::identity;
        for (int m = 16; m; m >>= 1) v = operation(v, __shfl_xor_sync(~0u, v, m));
        if (!threadIdx.x) *out = v;
    }
}

typedef int (*Step)(int);
__device__ int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }
__device__ int twice(int n) { return 2 * n; }
__device__ Step steps[2] = {fibonacci, twice};
__global__ void through_pointers(int* out) { out[threadIdx.x] = steps[threadIdx.x & 1](threadIdx.x % 12); }

// The loads are the caller's, although the function takes its argument by value.
struct Row {
    float v[8];
};
__device__ float sum_of(Row row) {
    float sum = 0;
    for (float each : row.v) sum += each;
    return sum;
}
__global__ void rows_by_value(const Row* rows, float* sums) { sums[threadIdx.x] = sum_of(rows[threadIdx.x]); }

__global__ void from_new(const int* x, int* y, int n) {
    int* mine = new int[n];
    for (int j = 0; j < n; ++j) mine[j] = x[threadIdx.x * n + n - 1 - j];
    for (int j = 0; j < n; ++j) y[threadIdx.x * n + j] = mine[j];
    delete[] mine;
}

__global__ void sums_by_parity(const int* x, int* out) {
    auto warp = cg::tiled_partition<32>(cg::this_thread_block());
    int v = x[threadIdx.x];
    auto alike = cg::labeled_partition(warp, v & 1);
    out[threadIdx.x] = cg::reduce(alike, v, cg::plus<int>());
}

__global__ void all_alike(const short* x, unsigned* out) {
    int all;
    unsigned same = __match_any_sync(~0u, x[threadIdx.x]);
    __match_all_sync(~0u, x[threadIdx.x] > -1000, &all);
    out[threadIdx.x] = all ? same : 0;
}
