// cuda::barrier, cuda::pipeline, cuda::atomic and the pipeline primitives, as tests/cuda/test_synchronisation.py launches them.
#include <cooperative_groups.h>
#include <cuda/atomic>
#include <cuda/barrier>
#include <cuda/pipeline>
#include <cuda/std/array>
#include <cuda/std/limits>
#include <cuda/std/type_traits>
#include <cuda_pipeline.h>
#include <nv/target>

namespace cg = cooperative_groups;
using Barrier = cuda::barrier<cuda::thread_scope_block>;

__global__ void arrive_then_wait(const float* in, float* out, int rounds) {
    __shared__ Barrier barrier;
    __shared__ float s[64];
    auto block = cg::this_thread_block();
    if (block.thread_rank() == 0) init(&barrier, block.size());
    block.sync();
    float total = 0;
    for (int r = 0; r < rounds; r++) {
        s[threadIdx.x] = in[threadIdx.x] + r;
        auto token = barrier.arrive();
        float own = in[threadIdx.x];
        barrier.wait(cuda::std::move(token));
        total += s[63 - threadIdx.x] + own;
        barrier.arrive_and_wait();
    }
    out[threadIdx.x] = total;
}

// The upper warp leaves; the lower one goes on alone.
__global__ void drop(float* out) {
    __shared__ Barrier barrier;
    __shared__ float s[32];
    if (threadIdx.x == 0) init(&barrier, 64);
    __syncthreads();
    if (threadIdx.x >= 32) {
        s[threadIdx.x - 32] = threadIdx.x;
        barrier.arrive_and_drop();
        return;
    }
    barrier.arrive_and_wait();
    float first = s[31 - threadIdx.x];
    barrier.arrive_and_wait();
    s[threadIdx.x] = first + 1;
    barrier.arrive_and_wait();
    out[threadIdx.x] = s[threadIdx.x ^ 1];
}

// One warp fills, the other one empties.
__global__ void hand_over(const float* in, float* out, int rounds) {
    __shared__ Barrier filled, emptied;
    __shared__ float s[32];
    if (threadIdx.x == 0) {
        init(&filled, 64);
        init(&emptied, 64);
    }
    __syncthreads();
    bool producer = threadIdx.x < 32;
    int lane = threadIdx.x % 32;
    for (int r = 0; r < rounds; r++) {
        if (producer) {
            if (r > 0) emptied.arrive_and_wait();
            s[lane] = in[32 * r + lane];
            (void)filled.arrive();
        } else {
            filled.arrive_and_wait();
            out[32 * r + lane] = s[31 - lane];
            if (r + 1 < rounds) (void)emptied.arrive();
        }
    }
}

__global__ void staged(const float* in, float* out, int batches) {
    constexpr int stages = 2;
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, stages> state;
    __shared__ alignas(16) float s[stages][64];
    auto block = cg::this_thread_block();
    auto pipe = cuda::make_pipeline(block, &state);
    for (int batch = 0, next = 0; batch < batches; batch++) {
        for (; next < batches && next < batch + stages; next++) {
            pipe.producer_acquire();
            cuda::memcpy_async(block, s[next % stages], in + 64 * next, sizeof(float) * 64, pipe);
            pipe.producer_commit();
        }
        pipe.consumer_wait();
        out[64 * batch + threadIdx.x] = s[batch % stages][63 - threadIdx.x];
        pipe.consumer_release();
    }
}

__global__ void specialised(const float* in, float* out, int batches) {
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 3> state;
    __shared__ float s[3][32];
    auto block = cg::this_thread_block();
    auto role = threadIdx.x < 32 ? cuda::pipeline_role::producer : cuda::pipeline_role::consumer;
    auto pipe = cuda::make_pipeline(block, &state, role);
    int lane = threadIdx.x % 32;
    for (int batch = 0; batch < batches; batch++) {
        if (role == cuda::pipeline_role::producer) {
            pipe.producer_acquire();
            cuda::memcpy_async(&s[batch % 3][lane], in + 32 * batch + lane, sizeof(float), pipe);
            pipe.producer_commit();
        } else {
            pipe.consumer_wait();
            out[32 * batch + lane] = s[batch % 3][31 - lane];
            pipe.consumer_release();
        }
    }
}

// Double buffering with cp.async, a thread's own pipeline; the last `zeros` bytes of each copy are not read.
__global__ void primitives(const float4* in, float4* out, int batches, int zeros) {
    __shared__ float4 s[2][32];
    __pipeline_memcpy_async(&s[0][threadIdx.x], &in[threadIdx.x], 16, zeros);
    __pipeline_commit();
    for (int batch = 0; batch < batches; batch++) {
        if (batch + 1 < batches) {
            __pipeline_memcpy_async(&s[(batch + 1) % 2][threadIdx.x], &in[32 * (batch + 1) + threadIdx.x], 16, zeros);
        }
        __pipeline_commit();
        __pipeline_wait_prior(1);
        __syncthreads();
        out[32 * batch + threadIdx.x] = s[batch % 2][31 - threadIdx.x];
        __syncthreads();
    }
}

__global__ void operations(const int* values, int* ints, float* sum, double* most, unsigned long long* threes) {
    int value = values[blockIdx.x * blockDim.x + threadIdx.x];
    __shared__ cuda::atomic<int, cuda::thread_scope_block> count;
    if (threadIdx.x == 0) count.store(0, cuda::memory_order_relaxed);
    __syncthreads();
    count++;
    cuda::atomic_ref<int, cuda::thread_scope_device>(ints[0]).fetch_add(value, cuda::memory_order_relaxed);
    cuda::atomic_ref<int>(ints[1]).fetch_min(value);
    cuda::atomic_ref<int>(ints[2]).fetch_xor(value);
    cuda::atomic_ref<int>(ints[3]) |= value;
    cuda::atomic_ref<float, cuda::thread_scope_device>(*sum).fetch_add(0.5f);
    cuda::atomic_ref<double>(*most).fetch_max(value);
    cuda::atomic_ref<unsigned long long> bits(*threes);
    unsigned long long seen = bits.load();
    while (!bits.compare_exchange_weak(seen, seen + 3)) {
    }
    __syncthreads();
    if (threadIdx.x == 0) atomicAdd(&ints[4], count.load());
}

__device__ cuda::atomic<int, cuda::thread_scope_device> flag;
__device__ int payload;

template <cuda::std::memory_order publish>
__device__ void message(int* out) {
    if (threadIdx.x != 0) return;
    if (blockIdx.x == 0) {
        payload = 42;
        flag.store(1, publish);
    } else {
        while (flag.load(cuda::std::memory_order_acquire) == 0) {
        }
        out[0] = payload;
    }
}
__global__ void message_released(int* out) { message<cuda::std::memory_order_release>(out); }
__global__ void message_relaxed(int* out) { message<cuda::std::memory_order_relaxed>(out); }

__global__ void targets(int* out) {
    cuda::std::array<int, 2> pair = {1, 2};
    static_assert(cuda::std::is_same<decltype(pair[0]), int&>::value, "");
    NV_IF_TARGET(NV_PROVIDES_SM_80, (out[0] = pair[1];), (out[0] = -1;))
    NV_IF_ELSE_TARGET(NV_IS_HOST, (out[1] = -1;), (out[1] = 5;))
    NV_DISPATCH_TARGET(NV_PROVIDES_SM_100, (out[2] = 1;), NV_PROVIDES_SM_70, (out[2] = 2;), NV_IS_DEVICE, (out[2] = 3;))
    NV_IF_TARGET(NV_IS_DEVICE, (out[3] = cuda::std::numeric_limits<int>::max();))
}
