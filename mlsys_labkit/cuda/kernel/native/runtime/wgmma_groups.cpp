// wgmma_groups.cpp: groups of products, their waits, and the accesses that come too early for them.
#include <algorithm>

#include "cluster.h"
#include "hooks.h"
#include "wgmma.h"

namespace lk {

namespace {

// A product is the whole warpgroup's: a wait returns when all its warps have made theirs.
void wait_for_warpgroup(Block& block, u32 first_left) {
    constexpr u32 kWarps = 4;
    if (first_left == 0) return;
    const u32 products = block.warps[block.warp].products_before[first_left - 1];
    const u32 first = block.warp / kWarps * kWarps;
    for (u32 number = first; number < std::min(first + kWarps, block.warp_count); number++) {
        const Warp& other = block.warps[number];
        while (other.products < products && other.done != other.lanes) {
            block.thread->watched = &other.products;
            block.thread->watched_value = other.products;
            wait_in(block, &Warp::waiting);
        }
    }
}

}  // namespace

bool check_operands(Block& block, const std::vector<u64>& chunks) {
    constexpr u32 kBytes = 16;
    const u32 reader = block.warp * kWarpSize;
    const u64 pc = block.threads[reader].pc;
    AsyncChecks& checks = *block.cluster->checks;
    checks.counts_uses(false);  // what the warp reads, it has read when a warp of its warpgroup has waited
    const auto is_wrong = [&](u64 at) { return block.recorder->access(reader, at, kBytes, Op::load, pc) != Verdict::proceed; };
    const bool stops = std::any_of(chunks.begin(), chunks.end(), is_wrong);
    checks.counts_uses(true);
    if (stops) {
        block.launch->stopped = true;
        return false;
    }
    std::vector<u64> offsets;
    for (const u64 at : chunks) offsets.push_back(at - block.shared_begin);
    const Actor by{block.rank, reader, pc};
    const Conflict conflict = checks.start_product(by, offsets, block.threads[reader].product_groups);
    if (conflict.kind != Conflict::none) report_conflict(block, conflict, FindingKind::missing_proxy_fence, by, kBytes, Op::load);
    return true;
}

void check_pending(Block& block, u64 address, u64 bytes, Op op, u64 pc) {
    for (const PendingResult& each : block.thread->pending) {
        if (address >= each.end || address + bytes <= each.begin) continue;
        FindingRecord finding = make_finding(block, FindingKind::pending_result, block.thread_number, pc);
        finding.op = u32(op);
        finding.bytes = u32(bytes);
        finding.other_pc = file_pc(block, each.pc);
        finding.other_thread = block.thread_number;
        finding.other_block = block.number;
        finding.values[0] = each.group < block.thread->product_groups;
        block.launch->findings.report(finding);
        block.thread->pending.clear();
        return;
    }
}

}  // namespace lk

using namespace lk;

void lk_wgmma_results(void* const* variables, unsigned count, unsigned bytes) {
    Block& block = enter_runtime();
    if (block.mode != Mode::check) return;
    std::vector<PendingResult>& pending = block.thread->pending;
    for (unsigned i = 0; i < count; i++) {
        const u64 at = reinterpret_cast<u64>(variables[i]);
        const PendingResult made{at, at + bytes, block.thread->product_groups, block.thread->pc};
        if (i && !pending.empty() && pending.back().end == at && pending.back().pc == made.pc) pending.back().end = at + bytes;
        else pending.push_back(made);
    }
}

void lk_wgmma_commit() {
    Block& block = enter_runtime();
    Warp& warp = block.warps[block.warp];
    if (++block.thread->product_groups > warp.products_before.size()) warp.products_before.push_back(warp.products);
    if (block.cluster->checks) block.cluster->checks->commit_products(actor(block), block.thread->product_groups);
}

void lk_wgmma_wait(unsigned left) {
    Block& block = enter_runtime();
    Thread& thread = *block.thread;
    const u32 first_left = thread.product_groups > left ? thread.product_groups - left : 0;
    wait_for_warpgroup(block, first_left);
    const auto over = [&](const PendingResult& each) { return each.group < first_left; };
    thread.pending.erase(std::remove_if(thread.pending.begin(), thread.pending.end(), over), thread.pending.end());
    if (block.cluster->checks) block.cluster->checks->wait_for_products(actor(block), first_left);
}
