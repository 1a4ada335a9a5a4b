// Cooperative groups, each result beside what tests/cuda/test_cooperative_groups.py works out in numpy.
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>

namespace cg = cooperative_groups;

// A block: rank, size, place.
__global__ void block(int* out) {
    cg::thread_block group = cg::this_thread_block();
    int* row = out + 8 * (group.thread_rank() + group.size() * (blockIdx.x + gridDim.x * blockIdx.y));
    row[0] = group.thread_rank();
    row[1] = group.size();
    row[2] = group.group_index().x;
    row[3] = group.group_index().y;
    row[4] = group.thread_index().z;
    row[5] = group.dim_threads().y;
    row[6] = cg::this_grid().thread_rank();
    row[7] = cg::this_grid().block_rank() + 100 * cg::this_grid().num_blocks() + 10000 * cg::this_grid().size();
}

template <int threads>
__device__ void tile(const int* values, int* out) {
    auto group = cg::tiled_partition<threads>(cg::this_thread_block());
    cg::thread_block_tile<threads> same = group;
    int value = values[threadIdx.x];
    int* row = out + 16 * threadIdx.x;
    row[0] = same.thread_rank();
    row[1] = same.meta_group_rank();
    row[2] = same.meta_group_size();
    row[3] = same.shfl(value, 1);
    row[4] = same.shfl_up(value, 1);
    row[5] = same.shfl_down(value, 1);
    row[6] = same.shfl_xor(value, threads / 2);
    row[7] = same.any(value > 50);
    row[8] = same.all(value > 50);
    row[9] = same.ballot(value > 50);
    row[10] = same.match_any(value % 3);
    row[11] = cg::reduce(same, value, cg::plus<int>());
    row[12] = cg::reduce(same, value, cg::greater<int>());
    row[13] = cg::inclusive_scan(same, value);
    row[14] = cg::exclusive_scan(same, value, cg::plus<int>());
    row[15] = cg::reduce(same, value, [](int a, int b) { return a ^ b; });
}

__global__ void tile1(const int* values, int* out) { tile<1>(values, out); }
__global__ void tile2(const int* values, int* out) { tile<2>(values, out); }
__global__ void tile4(const int* values, int* out) { tile<4>(values, out); }
__global__ void tile8(const int* values, int* out) { tile<8>(values, out); }
__global__ void tile16(const int* values, int* out) { tile<16>(values, out); }
__global__ void tile32(const int* values, int* out) { tile<32>(values, out); }

// The threads for which chosen[] is not zero.
__global__ void coalesced(const int* values, const int* chosen, int* out) {
    int value = values[threadIdx.x];
    int* row = out + 16 * threadIdx.x;
    if (chosen[threadIdx.x]) {
        cg::coalesced_group group = cg::coalesced_threads();
        row[0] = group.thread_rank();
        row[1] = group.size();
        row[2] = group.shfl(value, group.size() - 1);
        row[3] = group.shfl_up(value, 2);
        row[4] = group.shfl_down(value, 2);
        row[5] = group.any(value > 50);
        row[6] = group.all(value > 50);
        row[7] = group.ballot(value > 50);
        row[8] = group.match_any(value % 3);
        row[9] = cg::reduce(group, value, cg::plus<int>());
        row[10] = cg::reduce(group, value, cg::less<int>());
        row[11] = cg::inclusive_scan(group, value);
        row[12] = cg::exclusive_scan(group, value);
        auto labeled = cg::labeled_partition(group, value % 3);
        row[13] = labeled.thread_rank() + 100 * labeled.size() + 10000 * labeled.meta_group_rank();
        auto halves = cg::binary_partition(group, value > 50);
        row[14] = halves.thread_rank() + 100 * halves.size() + 10000 * halves.meta_group_rank();
        auto fours = cg::tiled_partition(group, 4);
        row[15] = fours.thread_rank() + 100 * fours.size() + 10000 * fours.meta_group_rank();
    }
}

// The textbook's reduction, on any group.
__device__ int sum(cg::thread_group group, int* scratch, int value) {
    int rank = group.thread_rank();
    for (int half = group.size() / 2; half > 0; half /= 2) {
        scratch[rank] = value;
        group.sync();
        if (rank < half) value += scratch[rank + half];
        group.sync();
    }
    return value;
}

__global__ void any_group(const int* values, int* out) {
    __shared__ int scratch[64];
    cg::thread_block all = cg::this_thread_block();
    out[threadIdx.x] = sum(all, scratch, values[threadIdx.x]);
    all.sync();
    cg::thread_group eight = cg::tiled_partition(all, 8);
    out[64 + threadIdx.x] = sum(eight, scratch + threadIdx.x / 8 * 8, values[threadIdx.x]);
}

// All blocks hand their values on; three times.
__global__ void grid(int* values, int n) {
    cg::grid_group group = cg::this_grid();
    int i = group.thread_rank();
    for (int round = 0; round < 3; ++round) {
        int next = values[(i + blockDim.x) % n];
        group.sync();
        values[i] = next;
        group.sync();
    }
}

__global__ void copied(const float* in, float* out, int n) {
    extern __shared__ float shared[];
    auto group = cg::this_thread_block();
    cg::memcpy_async(group, shared, in, sizeof(float) * n);
    cg::wait(group);
    for (int i = group.thread_rank(); i < n; i += group.size()) out[i] = shared[n - 1 - i];
}

__global__ void once(int* out) {
    auto group = cg::tiled_partition<16>(cg::this_thread_block());
    cg::invoke_one(group, [&] { atomicAdd(out, 1); });
    out[1 + threadIdx.x] = cg::invoke_one_broadcast(group, [&] { return int(threadIdx.x) + 5; });
}
