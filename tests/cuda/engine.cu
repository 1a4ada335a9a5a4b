// Kernels of test_engine.py and test_engine_faults.py: each does one thing that the simulator's engine is for.
#include <cuda_fp16.h>

#include <cassert>
#include <cstdio>

__global__ void shuffle(const long long* values, long long* out, int mode, int argument, int width) {
    long long value = values[threadIdx.x];
    long long result = 0;
    if (mode == 0) result = __shfl_sync(~0u, value, argument, width);
    if (mode == 1) result = __shfl_up_sync(~0u, value, argument, width);
    if (mode == 2) result = __shfl_down_sync(~0u, value, argument, width);
    if (mode == 3) result = __shfl_xor_sync(~0u, value, argument, width);
    out[threadIdx.x] = result;
}

__global__ void reads_up(int* out, int live) {
    if (threadIdx.x >= live) return;
    out[threadIdx.x] = __shfl_down_sync(~0u, 100 + int(threadIdx.x), 8);
}

__global__ void reads_outside_mask(int* out) {
    if (threadIdx.x < 16) out[threadIdx.x] = __shfl_sync(0xffff, 1, 20);
}

__global__ void shuffle_twice(int* out) {
    int first = __shfl_sync(~0u, 1000 + int(threadIdx.x), 31);
    if (threadIdx.x == 31) return;
    out[threadIdx.x] = __shfl_sync(~0u, first - 1000 + 1, 31);
}

__global__ void votes(const int* values, unsigned* ballots, unsigned* matches, unsigned* any_all) {
    int value = values[threadIdx.x];
    ballots[threadIdx.x] = __ballot_sync(~0u, value == 1);
    matches[threadIdx.x] = __match_any_sync(~0u, value);
    any_all[threadIdx.x] = __any_sync(~0u, value == 1) + 2 * __all_sync(~0u, value == 1);
}

__device__ int sum_over(unsigned mask, int first, int count, int value) {
    int sum = 0;
    for (int lane = first; lane < first + count; lane++) sum += __shfl_sync(mask, value, lane);
    return sum;
}

__global__ void sums_of_parts(int* out) {
    int lane = threadIdx.x;
    if (lane < 12) {
        out[lane] = sum_over(0xfff, 0, 12, lane);
    } else {
        out[lane] = sum_over(~0xfffu, 12, 20, lane);
    }
}

__global__ void active(unsigned* out) {
    if (threadIdx.x % 2) {
        unsigned here = __activemask();
        out[threadIdx.x] = here;
    } else {
        out[threadIdx.x] = __activemask() + 0;
    }
}

__global__ void mirror(int* out, int synchronise) {
    __shared__ int s[32];
    s[threadIdx.x] = threadIdx.x;
    if (synchronise) __syncwarp();
    out[threadIdx.x] = s[31 - threadIdx.x];
}

__global__ void barrier_votes(int* out, int step) {
    int t = threadIdx.x;
    out[3 * t] = __syncthreads_count(t % step == 0);
    out[3 * t + 1] = __syncthreads_and(t % step == 0) != 0;
    out[3 * t + 2] = __syncthreads_or(t == 0) != 0;
}

__global__ void many_live_values(double* out) {
    double v[24];
#pragma unroll
    for (int i = 0; i < 24; i++) v[i] = (double(threadIdx.x) + i) * 0.5;
    double sum = 0;
    for (int round = 0; round < 3; round++) {
        __syncthreads();
#pragma unroll
        for (int i = 0; i < 24; i++) sum += v[i] * (i + 1);
    }
    out[threadIdx.x] = sum;
}

__global__ void leaves_early(int* out) {
    if (threadIdx.x >= 40) return;
    out[threadIdx.x] = 1;
    __syncthreads();
    out[threadIdx.x] += 1;
}

__global__ void two_branches() {
    if (threadIdx.x / 32 % 2 == 0) {
        __syncthreads();  // even
    } else {
        __syncthreads();  // odd
    }
}

__global__ void stuck_warp() {
    if (threadIdx.x == 3) {
        __syncthreads();
    } else {
        __syncwarp();
    }
}

__global__ void half_at_syncwarp() {
    if (threadIdx.x < 16) __syncwarp(0xffff0000u | 0xffff);
    __syncthreads();
}

__global__ void ring(int* values, int* wrong) {
    __shared__ int mine;
    if (threadIdx.x == 0) mine = blockIdx.x;
    for (int round = 0; round < 10; round++) {
        if (threadIdx.x == 0) values[blockIdx.x] = round;
        lk_grid_barrier();
        int next = (blockIdx.x + 1) % gridDim.x;
        if (threadIdx.x == 0 && (values[next] != round || mine != int(blockIdx.x))) atomicAdd(wrong, 1);
        lk_grid_barrier();
    }
}

__global__ void pass_a_token_by_atomics(int* out) {
    __shared__ int turn;
    if (threadIdx.x == 0) turn = 0;
    __syncthreads();
    for (int round = 0; round < 3; round++) {
        int mine = round * blockDim.x + threadIdx.x;
        while (atomicAdd(&turn, 0) != mine) {
        }
        out[threadIdx.x] += 1;
        atomicAdd(&turn, 1);
    }
}

__global__ void wait_for_all(int* counters) {
    if (threadIdx.x == 0) {
        atomicAdd(&counters[0], 1);
        while (atomicAdd(&counters[0], 0) < int(gridDim.x)) {
        }
    }
    __syncthreads();
    if (threadIdx.x == 32) atomicAdd(&counters[1], 1);
}

// The compiler cannot know that another thread never writes: the loop has a call in it.
__device__ __noinline__ int look(const int* flag) { return *flag; }

__global__ void spin_without_volatile(int* out) {
    if (threadIdx.x == 0) {
        while (look(&out[0]) == 0) __threadfence();
        out[1] = out[0];
    }
    if (threadIdx.x == 40) out[0] = 7;
}

__global__ void locked(int* state) {
    bool done = false;
    while (!done) {
        if (atomicCAS(&state[0], 0, 1) == 0) {
            state[1] += 1;
            __threadfence();
            atomicExch(&state[0], 0);
            done = true;
        }
    }
}

__global__ void never_ends(int* out) {
    unsigned x = threadIdx.x;
    if (threadIdx.x == 5 && blockIdx.x == 2)
        while (x != 77777) x = x * 2 + 2;  // for ever: x is even
    out[threadIdx.x] = x;
}

__global__ void never_ends_with_memory(int* out) {
    if (threadIdx.x == 5 && blockIdx.x == 2)
        while (out[threadIdx.x] >= 0) out[threadIdx.x] &= 1023;  // for ever
}

#define GUILTY (blockIdx.x == 1 && threadIdx.x == 37)

__global__ void divides(int* out) {
    int zero = 64 * blockIdx.x + threadIdx.x - 101;
    out[64 * blockIdx.x + threadIdx.x] = 100 / zero;  // here
}

// Keeps the compiler from doing without the array.
__device__ __attribute__((noinline)) void fill(int* room, int count) {
    for (int i = 0; i < count; i += 100) room[i] = i;  // here, too
}

__device__ __attribute__((noinline)) int deeper(const int* bottom, int depth) {
    int room[200];                                                     // here: the pattern of unset variables
    fill(room, 100);                                                   // here
    return *bottom < 0 ? 0 : deeper(bottom, depth + 1) + room[depth];  // here
}

__global__ void overflows(int* out) {
    if (GUILTY) out[threadIdx.x] = deeper(out, 1);
}

__device__ __attribute__((noinline)) int wide(int index) {  // here the stack is made to reach
    int room[225000];
    fill(room, 225000);
    return room[index];
}

__global__ void large_frame(int* out) {
    if (GUILTY) out[threadIdx.x] = wide(1 + out[0]);  // here
}

__global__ void wild(int* out) {
    long index = GUILTY ? 400000000 : threadIdx.x;
    out[index] = 1;  // here
}

__global__ void null(int* out) {
    int* nowhere = GUILTY ? nullptr : out + threadIdx.x;
    *nowhere = 1;  // here
}

__global__ void asserts(int* out) {
    assert(!GUILTY || out[0] > 5);  // here
}

__global__ void traps(int* out) {
    if (GUILTY) __trap();  // here
    out[threadIdx.x] = 1;
}

__global__ void half_a_megabyte(int* out) {
    int room[125000];
    fill(room, 125000);
    out[threadIdx.x] = room[100 * threadIdx.x];
}

__global__ void block_sums(const int* values, int* totals, int synchronise) {
    __shared__ int sums[256];
    int t = threadIdx.x;
    sums[t] = values[blockIdx.x * blockDim.x + t];
    __syncthreads();
    for (int distance = 128; distance > 0; distance /= 2) {
        if (t < distance) sums[t] += sums[t + distance];
        if (synchronise || distance < 64) __syncthreads();
    }
    if (t == 0) totals[blockIdx.x] = sums[0];
}

__global__ void arrivals(int* out) { out[1 + atomicAdd(out, 1)] = threadIdx.x; }

__global__ void mark_block(int* out) { out[blockIdx.x] = 1; }

__global__ void prints() {
    printf("%5.2f|%-4d|%s|%%|%c|%lld|%x\n", 3.141592653589793, 7, "ab", 'c', 1ll << 40, 255);
}

__global__ void allocate(unsigned long long* pointers) {
    int* mine = static_cast<int*>(malloc(100 * sizeof(int)));
    for (int i = 0; i < 100; i++) mine[i] = threadIdx.x;
    pointers[threadIdx.x] = reinterpret_cast<unsigned long long>(mine);
}

__global__ void use_and_free(unsigned long long* pointers, int* out) {
    int* mine = reinterpret_cast<int*>(pointers[threadIdx.x]);
    out[threadIdx.x] = mine[0] + mine[50] + mine[99];
    free(mine);
}

__global__ void exhaust(int* out) {
    void* taken[1000];
    int count = 0;
    while (count < 1000 && (taken[count] = malloc(1 << 20))) count++;
    out[0] = count;
    for (int i = 0; i < count; i++) free(taken[i]);
}

__global__ void ticks(long long* out) {
    out[0] = clock64();
    for (int i = 0; i < 1000; i++) __threadfence();
    out[1] = clock64();
}

__global__ void shared_half(int* out) {
    __shared__ half s[64];
    s[threadIdx.x] = half(1.0f);
    __syncthreads();
    if (threadIdx.x == 0) out[0] = int(float(s[1]));
}

__global__ void shared_half2(int* out) {
    __shared__ half2 s[64];
    s[threadIdx.x] = half2(half(1.0f), half(2.0f));
    __syncthreads();
    if (threadIdx.x == 0) out[0] = int(float(s[1].y));
}

struct Pair {
    int value;
    Pair() = default;
    __device__ Pair(int value) : value(value) {}
};

__global__ void shared_pair(int* out) {
    __shared__ Pair s[64];
    s[threadIdx.x] = Pair(3);
    __syncthreads();
    if (threadIdx.x == 0) out[0] = s[1].value;
}
