// cluster.cpp: where blocks of a cluster meet, and each other's shared memory. See cluster.h.
#include "cluster.h"

#include "hooks.h"

namespace lk {

const char* wrong_cluster(const Launch& launch) {
    constexpr u32 kMostBlocks = 16;  // of sm_90, with cudaFuncAttributeNonPortableClusterSizeAllowed
    const lk_uint3& size = launch.cluster;
    const u64 blocks = u64{size.x} * size.y * size.z;
    if (blocks == 0) return "the dimensions of the cluster depend on template arguments: left out of the simulator";
    if (blocks > kMostBlocks) return "a cluster has at most 16 blocks, and 8 on every GPU with clusters";
    const bool divides = launch.grid.x % size.x == 0 && launch.grid.y % size.y == 0 && launch.grid.z % size.z == 0;
    return divides ? nullptr : "the grid has to be a multiple of the cluster in each dimension";
}

void start_cluster(Cluster& cluster) {
    cluster.barrier_phase = 0;
    cluster.arrivals = false;
    cluster.under_way.clear();
    if (cluster.checks) cluster.checks->begin();
}

Block* home_of(Block& block, u64 address, u64* offset) {
    *offset = address - block.shared_begin;
    if (*offset < block.shared_end - block.shared_begin) return &block;
    for (Block* other : block.cluster->blocks) {
        *offset = address - reinterpret_cast<u64>(other->shared_image.data());
        if (other != &block && *offset < other->shared_image.size()) return other;
    }
    *offset = 0;
    return nullptr;
}

bool is_remote(Block& block, u64 address) {
    u64 offset;
    if (block.cluster->blocks.size() == 1) return false;
    Block* home = home_of(block, address, &offset);
    return home && home != &block;
}

bool complete_cluster_barrier(Cluster& cluster) {
    if (!cluster.arrivals) return false;
    bool any = false;
    for (const Block* block : cluster.blocks) {
        for (u32 number = 0; number < block->thread_count; number++) {
            const bool ended = block->warps[number / kWarpSize].done >> number % kWarpSize & 1;
            const bool arrived = block->threads[number].cluster_arrivals > cluster.barrier_phase;
            if (!ended && !arrived) return false;
            any |= arrived;
        }
    }
    if (!any) return false;
    cluster.arrivals = false;
    cluster.barrier_phase++;
    cluster.events++;
    for (Block* block : cluster.blocks) {
        if (block->recorder) block->recorder->block_barrier();
    }
    for (Block* block : cluster.blocks) {
        if (block->recorder) block->recorder->cluster_barrier();
    }
    if (cluster.checks) cluster.checks->cluster_barrier();
    return true;
}

bool report_stuck_cluster(Cluster& cluster) {
    const auto find = [&](auto wanted) -> std::pair<const Block*, u32> {
        for (const Block* block : cluster.blocks) {
            for (u32 number = 0; number < block->thread_count; number++) {
                const bool ended = block->warps[number / kWarpSize].done >> number % kWarpSize & 1;
                if (!ended && wanted(block->threads[number])) return {block, number};
            }
        }
        return {nullptr, 0};
    };
    const auto [here, waiting] = find([](const Thread& thread) { return thread.in_cluster; });
    const auto [there, missing] = find([&](const Thread& thread) { return thread.cluster_arrivals <= cluster.barrier_phase; });
    if (!here) return false;
    FindingRecord finding = make_finding(*here, FindingKind::divergent_barrier, waiting, here->threads[waiting].pc);
    if (there) {
        finding.other_block = there->number;
        finding.other_thread = missing;
        finding.other_pc = file_pc(*there, there->threads[missing].pc);
    }
    here->launch->findings.report(finding);
    return true;
}

}  // namespace lk

using namespace lk;

unsigned lk_cluster_rank() { return current()->rank; }

unsigned lk_cluster_size() { return unsigned(current()->cluster->blocks.size()); }

lk_uint3 lk_cluster_extent() { return current()->cluster->extent; }

void* lk_cluster_map(const void* address, unsigned rank) {
    Block& block = enter_runtime();
    u64 offset = 0;
    Block* home = home_of(block, reinterpret_cast<u64>(address), &offset);
    if (!home || rank >= block.cluster->blocks.size()) {
        FindingRecord finding = make_finding(block, FindingKind::cluster_peer);
        finding.values[0] = rank;
        finding.values[1] = u32(block.cluster->blocks.size());
        block.launch->findings.report(finding);
        stop_launch(block);
    }
    Block* wanted = block.cluster->blocks[rank];
    const u64 begin = wanted == &block ? block.shared_begin : reinterpret_cast<u64>(wanted->shared_image.data());
    return reinterpret_cast<void*>(begin + offset);
}

unsigned lk_cluster_rank_of(const void* address) {
    Block& block = enter_runtime();
    u64 offset = 0;
    const Block* home = home_of(block, reinterpret_cast<u64>(address), &offset);
    return home ? home->rank : block.rank;
}

void* lk_cluster_address(unsigned low) {
    Block& block = *current();
    for (const Block* other : block.cluster->blocks) {
        const u64 begin = other == &block ? block.shared_begin : reinterpret_cast<u64>(other->shared_image.data());
        const u64 bytes = block.shared_end - block.shared_begin;
        if (u32(low - u32(begin)) < bytes) return reinterpret_cast<void*>(begin + u32(low - u32(begin)));
    }
    return reinterpret_cast<void*>(u64{low});
}

void lk_cluster_arrive() {
    Block& block = enter_runtime();
    block.thread->cluster_arrivals = block.cluster->barrier_phase + 1;
    block.cluster->arrivals = true;
    block.cluster->events++;
}

void lk_cluster_wait() {
    Block& block = enter_runtime();
    Thread& thread = *block.thread;
    while (block.cluster->barrier_phase + 1 == thread.cluster_arrivals) {
        thread.watched = &block.cluster->barrier_phase;
        thread.watched_value = block.cluster->barrier_phase;
        thread.in_cluster = true;
        wait_in(block, &Warp::waiting);
        thread.in_cluster = false;
    }
}
