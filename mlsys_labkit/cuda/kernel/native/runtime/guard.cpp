// guard.cpp: which addresses a graded kernel may touch. Coarse, since the recorder looks again: all device memory is one range.
#include "guard.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "cluster.h"
#include "device_heap.h"
#include "device_memory.h"
#include "scheduler.h"
#include "shadow_cell.h"

namespace lk {

bool guarded = getenv("LK_CUDA_GUARDED") != nullptr;

namespace {

constexpr u64 kWord = 8;
constexpr int kUnset = 0xFE;  // as -ftrivial-auto-var-init=pattern
constexpr u64 kNearShared = 64 << 10;  // a wrong index into shared memory, rather than a pointer from nowhere

// Each function that is under way keeps its caller's frame pointer and, beside it, where it returns to (-fno-omit-frame-pointer).
bool holds_return(const AddressRange& frames, u64 address, u64 bytes) {
    for (u64 frame = frames.begin; frame >= frames.begin && frame < frames.end && frame < address + bytes;) {
        if (address < frame + 2 * kWord) return true;
        const u64 caller = *reinterpret_cast<const u64*>(frame);
        if (caller <= frame) return false;
        frame = caller;
    }
    return false;
}

bool may_touch(Block& block, u64 address, u64 bytes, Op op, u64 frame) {
    if (is_local(address)) {
        const AddressRange frames{frame, block.thread->fiber->limit};
        return frames.begin <= frames.end && frames.holds(address, bytes) && (is_load(op) || !holds_return(frames, address, bytes));
    }
    if (AddressRange{block.shared_begin, block.shared_end}.holds(address, bytes)) {
        const AddressRange& rest = block.launch->description.shared_rest;
        const u64 offset = address - block.shared_begin;
        return offset >= rest.end || offset + bytes <= rest.begin;
    }
    if (device_memory().arena().holds(address, bytes)) return true;  // what is no buffer of it faults
    const LaunchDescription& module = block.launch->description;
    if (module.data.holds(address, bytes) || (is_load(op) && module.constants.holds(address, bytes))) return true;
    const u64 heap = heap_begin();  // once: other processes write what it is read from
    if (heap && AddressRange{heap, heap + kDeviceHeapBytes}.holds(address, bytes)) return true;
    u64 offset;
    const Block* home = block.cluster ? home_of(block, address, &offset) : nullptr;
    return home && offset + bytes <= home->shared_end - home->shared_begin;
}

}  // namespace

void guard_access(Block& block, u64 address, u64 bytes, Op op, u64 pc, u64 frame) {
    if (may_touch(block, address, bytes, op, frame)) return;
    const bool near_shared = address - (block.shared_begin - kNearShared) < block.shared_end - block.shared_begin + 2 * kNearShared;
    const FindingKind kind = near_shared ? FindingKind::shared_out_of_bounds : FindingKind::out_of_bounds;
    FindingRecord finding = make_finding(block, kind, block.thread_number, pc);
    finding.op = u32(op);
    finding.bytes = u32(bytes);
    finding.address = near_shared ? address - block.shared_begin : address;
    if (is_local(address)) {
        const Fiber& own = *block.thread->fiber;
        const bool is_own = address >= reinterpret_cast<u64>(own.low) && address < reinterpret_cast<u64>(own.top);
        finding.values[0] = is_own ? 2 : 1;
    } else if (const Buffer* near = near_shared ? nullptr : device_memory().nearest(address)) {
        finding.begin = near->begin;
        finding.end = near->end;
    }
    block.launch->findings.report(finding);
    stop_launch(block);
}

void clear_shared(Block& block) {
    const AddressRange& rest = block.launch->description.shared_rest;
    const u64 bytes = block.shared_end - block.shared_begin;
    memset(reinterpret_cast<void*>(block.shared_begin), kUnset, std::min(rest.begin, bytes));
    if (rest.end < bytes) memset(reinterpret_cast<void*>(block.shared_begin + rest.end), kUnset, bytes - rest.end);
}

void clear_stack(Fiber& fiber) {
    u64 here;
#if defined(__x86_64__)
    asm volatile("movq %%rsp,%0" : "=r"(here));
#else
    asm volatile("mov %0,sp" : "=r"(here));
#endif
    for (volatile u64* word = reinterpret_cast<u64*>(fiber.lowest & ~(kWord - 1)); reinterpret_cast<u64>(word) < here; word++) *word = 0;
    fiber.lowest = here;
}

}  // namespace lk
