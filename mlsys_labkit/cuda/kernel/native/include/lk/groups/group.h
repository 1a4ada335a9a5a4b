// group.h: groups of threads: a thread's block, the whole grid, and thread_group, which can stand for any of them.
#pragma once

#include "lk/builtins.h"
#include "lk/call_site.h"

namespace lk {

LK_INLINE unsigned thread_number() { return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z); }

LK_INLINE unsigned block_threads() { return blockDim.x * blockDim.y * blockDim.z; }

LK_INLINE unsigned long long block_number() {
    const unsigned long long row = blockIdx.y + static_cast<unsigned long long>(gridDim.y) * blockIdx.z;
    return blockIdx.x + gridDim.x * row;
}

LK_INLINE unsigned long long grid_blocks() {
    return static_cast<unsigned long long>(gridDim.x) * gridDim.y * gridDim.z;
}

LK_INLINE unsigned lanes_below(unsigned mask) { return mask & ((1u << lk_lane()) - 1); }

enum class GroupKind { block, cluster, grid, lanes };

}  // namespace lk

namespace cooperative_groups {

class thread_group {
public:
    LK_INLINE unsigned long long size() const;
    LK_INLINE unsigned long long num_threads() const { return size(); }
    LK_INLINE unsigned long long thread_rank() const;
    LK_INLINE void sync(int site = lk::call_site()) const;

protected:
    explicit thread_group(lk::GroupKind kind, unsigned mask = 0) : lk_kind(kind), lk_mask(mask) {}

    lk::GroupKind lk_kind;
    unsigned lk_mask;  // of a group of lanes

    friend thread_group tiled_partition(const thread_group& parent, unsigned tile_threads);
};

// Arriving and waiting apart: here the wait is the whole barrier, which is no earlier than on a GPU.
class thread_block : public thread_group {
public:
    struct arrival_token {};

    static LK_INLINE void sync(int site = lk::call_site()) { lk_block_barrier(site); }
    LK_INLINE arrival_token barrier_arrive() const { return {}; }
    LK_INLINE void barrier_wait(arrival_token&&, int site = lk::call_site()) const { lk_block_barrier(site); }

    static LK_INLINE unsigned size() { return lk::block_threads(); }
    static LK_INLINE unsigned num_threads() { return lk::block_threads(); }
    static LK_INLINE unsigned thread_rank() { return lk::thread_number(); }
    static LK_INLINE dim3 group_index() { return blockIdx; }
    static LK_INLINE dim3 thread_index() { return threadIdx; }
    static LK_INLINE dim3 group_dim() { return blockDim; }
    static LK_INLINE dim3 dim_threads() { return blockDim; }

private:
    thread_block() : thread_group(lk::GroupKind::block) {}

    friend thread_block this_thread_block();
};

LK_INLINE thread_block this_thread_block() { return {}; }

// Any launch can synchronise its grid here; on a GPU it has to be a cooperative one.
class grid_group : public thread_group {
public:
    using arrival_token = unsigned;

    LK_INLINE bool is_valid() const { return true; }
    LK_INLINE void sync() const { lk_grid_barrier(); }
    LK_INLINE arrival_token barrier_arrive() const { return 0; }
    LK_INLINE void barrier_wait(arrival_token&&) const { lk_grid_barrier(); }

    static LK_INLINE unsigned long long size() { return lk::grid_blocks() * lk::block_threads(); }
    static LK_INLINE unsigned long long num_threads() { return size(); }
    static LK_INLINE unsigned long long thread_rank() {
        return lk::block_number() * lk::block_threads() + lk::thread_number();
    }
    static LK_INLINE unsigned long long num_blocks() { return lk::grid_blocks(); }
    static LK_INLINE unsigned long long block_rank() { return lk::block_number(); }
    static LK_INLINE dim3 dim_blocks() { return gridDim; }
    static LK_INLINE dim3 group_dim() { return gridDim; }
    static LK_INLINE dim3 block_index() { return blockIdx; }
    static LK_INLINE dim3 dim_threads() { return blockDim; }
    static LK_INLINE dim3 thread_index() { return threadIdx; }

private:
    grid_group() : thread_group(lk::GroupKind::grid) {}

    friend grid_group this_grid();
};

LK_INLINE grid_group this_grid() { return {}; }

LK_INLINE unsigned long long thread_group::size() const {
    switch (lk_kind) {
        case lk::GroupKind::block: return thread_block::size();
        case lk::GroupKind::cluster: return lk_cluster_size() * lk::block_threads();
        case lk::GroupKind::grid: return grid_group::size();
        default: return __builtin_popcount(lk_mask);
    }
}

LK_INLINE unsigned long long thread_group::thread_rank() const {
    switch (lk_kind) {
        case lk::GroupKind::block: return thread_block::thread_rank();
        case lk::GroupKind::cluster: return lk_cluster_rank() * lk::block_threads() + lk::thread_number();
        case lk::GroupKind::grid: return grid_group::thread_rank();
        default: return __builtin_popcount(lk::lanes_below(lk_mask));
    }
}

LK_INLINE void thread_group::sync(int site) const {
    switch (lk_kind) {
        case lk::GroupKind::block: return lk_block_barrier(site);
        case lk::GroupKind::cluster: return lk_cluster_arrive(), lk_cluster_wait();
        case lk::GroupKind::grid: return lk_grid_barrier();
        default: return lk_warp_barrier(lk_mask);
    }
}

}  // namespace cooperative_groups
