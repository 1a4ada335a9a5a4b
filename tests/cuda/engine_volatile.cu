// Kernels of test_engine.py and test_engine_faults.py that leave to volatile what __syncwarp and atomics are for.
__global__ void volatile_sum(const float* values, float* total) {
    __shared__ float sums[64];
    int t = threadIdx.x;
    sums[t] = values[t];
    sums[t + 32] = values[t + 32];
    volatile float* s = sums;
    s[t] += s[t + 32];
    s[t] += s[t + 16];
    s[t] += s[t + 8];
    s[t] += s[t + 4];
    s[t] += s[t + 2];
    s[t] += s[t + 1];
    if (t == 0) *total = s[0];
}

__global__ void pass_a_token(int* out) {
    __shared__ volatile int turn;
    if (threadIdx.x == 0) turn = 0;
    __syncthreads();
    for (int round = 0; round < 3; round++) {
        int mine = round * blockDim.x + threadIdx.x;
        while (turn != mine) {
        }
        out[threadIdx.x] += 1;
        __threadfence_block();
        turn = mine + 1;
    }
}

// The sum again, after work that takes the last lane 124,000 iterations longer than the first.
__global__ void volatile_sum_after_unequal_work(const float* values, unsigned* work, float* total) {
    __shared__ float sums[64];
    int t = threadIdx.x;
    unsigned number = work[t];
    for (int i = 0; i < t * 4000; i++) number = number * 1664525 + 1013904223;
    work[t] = number;
    sums[t] = values[t];
    sums[t + 32] = values[t + 32];
    volatile float* s = sums;
    s[t] += s[t + 32];
    s[t] += s[t + 16];
    s[t] += s[t + 8];
    s[t] += s[t + 4];
    s[t] += s[t + 2];
    s[t] += s[t + 1];
    if (t == 0) *total = s[0];
}

__global__ void counted_under_lock(int* lock, volatile int* count) {
    while (atomicCAS(lock, 0, 1) != 0) {
    }
    __threadfence();
    *count = *count + 1;
    __threadfence();
    atomicExch(lock, 0);
}

__global__ void counted_under_blocks_lock(int* lock, int* counts) {
    __shared__ int taken;
    __shared__ volatile int count;
    if (threadIdx.x == 0) taken = count = 0;
    __syncthreads();
    while (atomicExch(&taken, 1) != 0) {
    }
    __threadfence_block();
    count = count + 1;
    __threadfence_block();
    atomicExch(&taken, 0);
    __syncthreads();
    if (threadIdx.x == 0) counts[blockIdx.x] = count;
}
