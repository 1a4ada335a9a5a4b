// Kernels of test_engine.py that leave to volatile what __syncwarp and atomics are for.
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
