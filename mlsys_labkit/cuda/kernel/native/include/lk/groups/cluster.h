// cluster.h: the blocks of a cluster as a group.
#pragma once

#include "lk/groups/group.h"

namespace lk {

// One of the lanes that call it.
LK_INLINE bool elect(unsigned mask) { return (mask & (1u << lk_lane())) && (mask & ((1u << lk_lane()) - 1)) == 0; }

}  // namespace lk

namespace cooperative_groups {

class cluster_group : public thread_group {
public:
    struct arrival_token {};

    static LK_INLINE void sync() {
        lk_cluster_arrive();
        lk_cluster_wait();
    }
    static LK_INLINE arrival_token barrier_arrive() {
        lk_cluster_arrive();
        return {};
    }
    static LK_INLINE void barrier_wait() { lk_cluster_wait(); }
    static LK_INLINE void barrier_wait(arrival_token&&) { lk_cluster_wait(); }

    template <class Element>
    static LK_INLINE Element* map_shared_rank(Element* at, int rank) {
        return static_cast<Element*>(lk_cluster_map(const_cast<const void*>(static_cast<const volatile void*>(at)), unsigned(rank)));
    }
    static LK_INLINE unsigned query_shared_rank(const void* at) { return lk_cluster_rank_of(at); }

    static LK_INLINE unsigned num_blocks() { return lk_cluster_size(); }
    static LK_INLINE unsigned block_rank() { return lk_cluster_rank(); }
    static LK_INLINE dim3 dim_blocks() {
        const lk_uint3 extent = lk_cluster_extent();
        return dim3(extent.x, extent.y, extent.z);
    }
    static LK_INLINE dim3 block_index() {
        const dim3 extent = dim_blocks();
        return dim3(blockIdx.x % extent.x, blockIdx.y % extent.y, blockIdx.z % extent.z);
    }
    static LK_INLINE dim3 dim_threads() {
        const dim3 extent = dim_blocks();
        return dim3(extent.x * blockDim.x, extent.y * blockDim.y, extent.z * blockDim.z);
    }
    static LK_INLINE dim3 thread_index() {
        const dim3 block = block_index();
        return dim3(block.x * blockDim.x + threadIdx.x, block.y * blockDim.y + threadIdx.y, block.z * blockDim.z + threadIdx.z);
    }
    static LK_INLINE unsigned long long size() { return num_blocks() * lk::block_threads(); }
    static LK_INLINE unsigned long long num_threads() { return size(); }
    static LK_INLINE unsigned long long thread_rank() { return block_rank() * lk::block_threads() + lk::thread_number(); }

private:
    cluster_group() : thread_group(lk::GroupKind::cluster) {}

    friend cluster_group this_cluster();
};

LK_INLINE cluster_group this_cluster() { return {}; }

}  // namespace cooperative_groups
