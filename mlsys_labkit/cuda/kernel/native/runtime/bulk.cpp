// bulk.cpp: bulk copies (TMA): started by one thread, made later by the simulator's copy engine.
//
// A copy is made after the warps of a block have had their turns, or when a thread waits for its bulk group: an access that does
// not wait sees what was there before. check looks at each copy when it is started, see async_checks.h.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "cluster.h"
#include "hooks.h"

namespace lk {

namespace {

constexpr u64 kPart = 16;

void stop_if_misaligned(Block& block, u64 to, u64 from, u64 bytes) {
    const u32 wrong = to % kPart ? 1 : from % kPart ? 2 : bytes % kPart ? 3 : 0;
    if (!wrong) return;
    FindingRecord finding = make_finding(block, FindingKind::misaligned_copy);
    finding.values[0] = wrong;
    finding.values[1] = u32(wrong == 1 ? to % kPart : wrong == 2 ? from % kPart : bytes % kPart);
    finding.bytes = u32(bytes);
    block.launch->findings.report(finding);
    stop_launch(block);
}

// The largest power of two up to kPart that divides a number.
u64 part_of(u64 number) { return std::min(kPart, number & -number); }

}  // namespace

// The parts of a copy that lie in global memory, as one thread's accesses in check, as warps' requests in profile.
void record_global(Block& block, u64 address, u64 bytes, Op op) {
    const u64 pc = block.thread->pc;
    const u64 part = part_of(address | bytes);
    if (block.mode == Mode::check) {
        for (u64 at = address; at < address + bytes; at += part) {
            if (block.recorder->access(block.thread_number, at, u32(part), op, pc) == Verdict::stop) stop_launch(block);
        }
    } else if (block.mode == Mode::profile) {
        for (u64 at = address; at < address + bytes; at += part * kWarpSize) {
            const u64 lanes = std::min<u64>((address + bytes - at) / part, kWarpSize);
            Request request{pc, u32(part), op, u32((u64{1} << lanes) - 1), block.warp, {}};
            for (u64 lane = 0; lane < lanes; lane++) request.addresses[lane] = at + lane * part;
            block.recorder->request(request);
        }
    }
    // Faults here, where the thread is known, and not when the copy is made.
    for (const u64 at : {address, address + bytes - 1}) (void)*reinterpret_cast<const volatile char*>(at);
}

Block& shared_side(Block& block, u64 address, u64 bytes, Op op, u64* offset) {
    Block* home = home_of(block, address, offset);
    if (home && *offset + bytes <= home->shared_end - home->shared_begin) return *home;
    FindingRecord finding = make_finding(block, FindingKind::shared_out_of_bounds);
    finding.op = u32(op);
    finding.bytes = u32(bytes);
    finding.address = address - block.shared_begin;
    block.launch->findings.report(finding);
    stop_launch(block);
}

namespace {

FindingKind kind_of(const Conflict& conflict) {
    switch (conflict.kind) {
        case Conflict::unfinished: return FindingKind::unfinished_copy;
        case Conflict::in_use: return FindingKind::source_in_use;
        case Conflict::unfenced: return FindingKind::missing_proxy_fence;
        case Conflict::multiplied: return FindingKind::operand_in_use;
        default: return FindingKind::early_overwrite;
    }
}

void check_load(Block& block, Block& home, u64 offset, u64 bytes, u64 barrier_offset, const Mbarrier& barrier) {
    AsyncChecks* checks = block.cluster->checks.get();
    if (!checks) return;
    const Actor by = actor(block);
    if (!checks->fenced_since(barrier.made, barrier.maker, by)) {
        Conflict conflict{Conflict::unfenced, barrier.maker, barrier_offset};
        report_conflict(block, conflict, FindingKind::missing_proxy_fence, by, 0);
    }
    const Conflict conflict = checks->start_load(by, home.rank, offset, bytes, barrier_key(home, barrier_offset), barrier.phase);
    if (conflict.kind != Conflict::none) report_conflict(block, conflict, kind_of(conflict), by, bytes);
    block.recorder->filled_by_copy(*home.recorder, by, offset, u32(bytes), conflict.fresh && conflict.kind == Conflict::none);
}

void check_source(Block& block, u64 offset, u64 bytes, bool grouped) {
    AsyncChecks* checks = block.cluster->checks.get();
    if (!checks) return;
    const Actor by = actor(block);
    for (u64 at = offset; at < offset + bytes; at += kPart) {
        block.recorder->read_by_copy(block.thread_number, block.shared_begin + at, kPart, by.pc);
    }
    const Conflict conflict = checks->start_store(by, offset, bytes, block.thread->bulk_groups, grouped);
    if (conflict.kind != Conflict::none) report_conflict(block, conflict, kind_of(conflict), by, bytes);
}

// Memory of the block that runs lies elsewhere than when another one does.
char* now_at(Block& home, u64 offset) {
    Block* running = home.cluster->running;
    return running == &home ? reinterpret_cast<char*>(home.shared_begin + offset) : home.shared_image.data() + offset;
}

void make(const BulkCopy& copy) {
    char* to = copy.to_home ? now_at(*copy.to_home, copy.to_offset) : copy.to;
    const char* from = copy.from_home ? now_at(*copy.from_home, copy.from_offset) : copy.from;
    if (copy.box && copy.to_home) move_box(*copy.box, to, copy.to_home->shared_begin + copy.to_offset);
    else if (copy.box) move_box(*copy.box, const_cast<char*>(from), copy.from_home->shared_begin + copy.from_offset);
    else if (copy.combine) copy.combine(to, from, copy.bytes);
    else memcpy(to, from, copy.bytes);
    if (copy.barrier_home) complete_bytes(*copy.barrier_home, copy.barrier, copy.phase, i64(copy.bytes), copy.by);
}

void start_load(Block& block, void* to, const void* from, u64 bytes, void* barrier) {
    BulkCopy copy;
    copy.bytes = bytes;
    copy.to_home = &shared_side(block, reinterpret_cast<u64>(to), bytes, Op::store, &copy.to_offset);
    u64 offset;
    if (Block* source = home_of(block, reinterpret_cast<u64>(from), &offset)) {
        shared_side(block, reinterpret_cast<u64>(from), bytes, Op::load, &offset);
        copy.from_home = source;
        copy.from_offset = offset;
        check_source(block, offset, bytes, false);
    } else {
        copy.from = static_cast<const char*>(from);
        record_global(block, reinterpret_cast<u64>(from), bytes, Op::load);
    }
    launch_load(block, copy, bytes, barrier);
}

}  // namespace

void launch_load(Block& block, BulkCopy& copy, u64 shared_bytes, void* barrier) {
    copy.by = actor(block);
    Mbarrier& until = barrier_at(block, barrier, &copy.barrier_home, &copy.barrier);
    copy.phase = until.phase;
    check_load(block, *copy.to_home, copy.to_offset, shared_bytes, copy.barrier, until);
    until.flying += copy.bytes;
    copy.to_home->flying += copy.bytes;
    if (block.recorder) block.recorder->bulk_copy(copy.to_home->flying);
    block.cluster->under_way.push_back(copy);
}

void launch_store(Block& block, BulkCopy& copy, u64 shared_bytes) {
    copy.by = actor(block);
    copy.group = block.thread->bulk_groups;
    check_source(block, copy.from_offset, shared_bytes, true);
    if (block.recorder) block.recorder->bulk_copy(block.flying);
    block.cluster->under_way.push_back(copy);
}

void report_conflict(Block& block, const Conflict& conflict, FindingKind kind, const Actor& by, u64 bytes, Op op) {
    FindingRecord finding = make_finding(block, kind, by.thread, by.pc);
    finding.address = conflict.offset;
    finding.bytes = u32(bytes);
    finding.other_pc = file_pc(block, conflict.other.pc);
    finding.other_thread = conflict.other.thread;
    finding.other_block = block.cluster->blocks[conflict.other.rank]->number;
    finding.op = u32(op);
    finding.other_op = u32(Op::store);
    finding.values[0] = conflict.committed;
    finding.values[1] = 1;
    block.launch->findings.report(finding);
}

void make_copies(Cluster& cluster) {
    std::vector<BulkCopy> copies;
    copies.swap(cluster.under_way);
    for (const BulkCopy& copy : copies) make(copy);
    if (!copies.empty()) cluster.events++;
}

void end_copies(Block& block) {
    if (!block.cluster->checks) return;
    const Conflict left = block.cluster->checks->left_over(block.rank);
    if (left.kind == Conflict::none) return;
    Block& starter = *block.cluster->blocks[left.other.rank];
    FindingRecord finding = make_finding(starter, FindingKind::abandoned_copy, left.other.thread, left.other.pc);
    finding.address = left.offset;
    finding.values[0] = left.committed;
    finding.values[1] = left.kind == Conflict::in_use;
    block.launch->findings.report(finding);
}

}  // namespace lk

using namespace lk;

void lk_bulk_load(void* to, const void* from, unsigned long bytes, void* barrier) {
    Block& block = enter_runtime();
    stop_if_misaligned(block, reinterpret_cast<u64>(to), reinterpret_cast<u64>(from), bytes);
    if (bytes) start_load(block, to, from, bytes, barrier);
}

void lk_bulk_multicast(void* to, const void* from, unsigned long bytes, void* barrier, unsigned ranks) {
    Block& block = enter_runtime();
    stop_if_misaligned(block, reinterpret_cast<u64>(to), reinterpret_cast<u64>(from), bytes);
    for (unsigned rank = 0; bytes && rank < block.cluster->blocks.size(); rank++) {
        if (!(ranks >> rank & 1)) continue;
        const u64 pc = block.thread->pc;
        void* there = lk_cluster_map(to, rank);
        void* signalled = lk_cluster_map(barrier, rank);
        block.thread->pc = pc;
        start_load(block, there, from, bytes, signalled);
    }
}

void lk_bulk_store(void* to, const void* from, unsigned long bytes, void (*combine)(char*, const char*, unsigned long)) {
    Block& block = enter_runtime();
    stop_if_misaligned(block, reinterpret_cast<u64>(to), reinterpret_cast<u64>(from), bytes);
    if (!bytes) return;
    BulkCopy copy;
    copy.bytes = bytes;
    copy.to = static_cast<char*>(to);
    copy.from_home = &shared_side(block, reinterpret_cast<u64>(from), bytes, Op::load, &copy.from_offset);
    copy.combine = combine;
    record_global(block, reinterpret_cast<u64>(to), bytes, combine ? Op::atomic : Op::store);
    launch_store(block, copy, bytes);
}

void lk_bulk_commit() {
    Block& block = enter_runtime();
    block.thread->bulk_groups++;
    if (block.cluster->checks) block.cluster->checks->commit_group(actor(block));
}

void lk_bulk_wait(unsigned left) {
    Block& block = enter_runtime();
    const u32 first_left = block.thread->bulk_groups > left ? block.thread->bulk_groups - left : 0;
    auto& copies = block.cluster->under_way;
    const auto waited = [&](const BulkCopy& copy) {
        return !copy.barrier_home && copy.by.rank == block.rank && copy.by.thread == block.thread_number && copy.group < first_left;
    };
    for (const BulkCopy& copy : copies) {
        if (waited(copy)) make(copy);
    }
    copies.erase(std::remove_if(copies.begin(), copies.end(), waited), copies.end());
    if (block.cluster->checks) block.cluster->checks->wait_for_groups(actor(block), first_left);
}

void lk_proxy_fence() {
    Block& block = enter_runtime();
    if (block.cluster->checks) block.cluster->checks->proxy_fence(actor(block));
}
