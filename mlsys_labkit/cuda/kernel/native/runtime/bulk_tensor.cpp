// bulk_tensor.cpp: copies with tensor maps: a box of a tensor to or from shared memory.
#include <cstring>

#include "cluster.h"
#include "hooks.h"

namespace lk {

namespace {

constexpr u64 kAlignment = 128;  // of a box in shared memory

enum Wrong : u32 { no_map = 1, other_rank = 2, misaligned_box = 3 };

[[noreturn]] void refuse(Block& block, Wrong wrong, u64 value) {
    FindingRecord finding = make_finding(block, FindingKind::tensor_map);
    finding.values[0] = wrong;
    finding.values[1] = u32(value);
    block.launch->findings.report(finding);
    stop_launch(block);
}

std::shared_ptr<TensorBox> read_box(Block& block, const void* map, const int* at, u32 rank, u64 shared) {
    if (guarded) {
        guard_access(block, reinterpret_cast<u64>(map), sizeof(TensorMap), Op::load, block.thread->pc,
                     reinterpret_cast<u64>(__builtin_frame_address(0)));
    }
    auto box = std::make_shared<TensorBox>();
    memcpy(&box->map, map, sizeof box->map);
    if (box->map.mark != kTensorMapMark || box->map.rank == 0 || box->map.rank > kMostDimensions) refuse(block, no_map, 0);
    if (box->map.rank != rank) refuse(block, other_rank, box->map.rank);
    if (shared % kAlignment) refuse(block, misaligned_box, shared % kAlignment);
    for (u32 dimension = 0; dimension < rank; dimension++) box->at[dimension] = at[dimension];
    return box;
}

void record_box(Block& block, const TensorBox& box, Op op) {
    box.each_row([&](u64, u64 address, u64, u64 bytes) {
        if (!bytes) return;
        if (guarded) {
            guard_access(block, address, bytes, op, block.thread->pc, reinterpret_cast<u64>(__builtin_frame_address(0)));
        }
        record_global(block, address, bytes, op);
    });
}

void start(Block& block, void* to, const std::shared_ptr<TensorBox>& box, void* barrier) {
    BulkCopy copy;
    copy.bytes = box->bytes();
    copy.box = box;
    copy.to_home = &shared_side(block, reinterpret_cast<u64>(to), box->shared_bytes(), Op::store, &copy.to_offset);
    launch_load(block, copy, box->shared_bytes(), barrier);
}

}  // namespace

}  // namespace lk

using namespace lk;

void lk_bulk_tensor_load(void* to, const void* map, const int* at, unsigned rank, void* barrier, unsigned ranks) {
    Block& block = enter_runtime();
    u64 offset = 0;
    const Block* home = home_of(block, reinterpret_cast<u64>(to), &offset);
    const auto box = read_box(block, map, at, rank, home ? home->shared_begin + offset : reinterpret_cast<u64>(to));
    record_box(block, *box, Op::load);
    if (!ranks) return start(block, to, box, barrier);
    for (unsigned each = 0; each < block.cluster->blocks.size(); each++) {
        if (!(ranks >> each & 1)) continue;
        const u64 pc = block.thread->pc;
        void* there = lk_cluster_map(to, each);
        void* signalled = lk_cluster_map(barrier, each);
        block.thread->pc = pc;
        start(block, there, box, signalled);
    }
}

void lk_bulk_tensor_store(const void* map, const int* at, unsigned rank, const void* from, int reduction) {
    Block& block = enter_runtime();
    const auto box = read_box(block, map, at, rank, reinterpret_cast<u64>(from));
    box->stores = true;
    box->reduction = TensorReduction(reduction);
    BulkCopy copy;
    copy.bytes = box->bytes();
    copy.box = box;
    copy.from_home = &shared_side(block, reinterpret_cast<u64>(from), box->shared_bytes(), Op::load, &copy.from_offset);
    record_box(block, *box, reduction ? Op::atomic : Op::store);
    launch_store(block, copy, box->shared_bytes());
}
