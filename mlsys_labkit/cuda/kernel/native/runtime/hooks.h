// hooks.h: from a hook to the recorder (check) or to the lane's trace (profile).
#pragma once

#include "guard.h"
#include "scheduler.h"
#include "wgmma.h"

namespace lk {

// True for the running thread's own local variables. Those of another thread are no memory that it can reach on a GPU, and
// would be a cache that is not counted.
inline bool is_own(const Block& block, u64 address) {
    const Fiber& fiber = *block.thread->fiber;
    return address >= reinterpret_cast<u64>(fiber.low) && address < reinterpret_cast<u64>(fiber.top);
}

// An access to the thread's own variables: counted in arrays that a GPU would keep in local memory, not in its registers.
inline void record_local(Block& block, u64 address, u8 bytes, Op op, u64 pc) {
    for (const AddressRange& array : block.thread->local_arrays) {
        if (!array.holds(address, bytes)) continue;
        const u64 offset = address - reinterpret_cast<u64>(block.thread->fiber->low);
        block.trace->push({kLocalMemory + offset, u32(pc - block.launch->module->text.begin), bytes, op, Kind::access});
        return;
    }
}

inline void record_access(Block& block, u64 address, u8 bytes, Op op, u64 pc) {
    if (guarded) guard_access(block, address, bytes, op, pc, reinterpret_cast<u64>(__builtin_frame_address(0)));
    if (is_local(address) && is_own(block, address)) {
        if (block.trace) record_local(block, address, bytes, op, pc);
        else if (!block.thread->pending.empty()) check_pending(block, address, bytes, op, pc);
        return;
    }
    if (LaneTrace* trace = block.trace) {
        trace->push({address, u32(pc - block.launch->module->text.begin), bytes, op, Kind::access});
        return;
    }
    if (block.mode != Mode::check) return;
    block.thread->pc = pc;
    if (block.recorder->access(block.thread_number, address, bytes, op, pc) == Verdict::stop) stop_launch(block);
}

// Of a whole program's host code; nullptr: nobody asks.
extern void (*access_outside_kernels)(u64 address, u64 bytes, bool writes, u64 pc);

inline void record_here(void* address, u8 bytes, Op op, u64 pc) {
    if (Block* block = current()) {
        record_access(*block, reinterpret_cast<u64>(address), bytes, op, pc);
    } else if (access_outside_kernels) {
        access_outside_kernels(reinterpret_cast<u64>(address), bytes, op == Op::store, pc);
    }
}

// Lanes of a warp meet before each volatile access: code of the time before __syncwarp counts on their being in step there.
// Code with a lock for each thread does not, and its lanes cannot all come (see kMeetingWait).
inline void record_volatile(void* address, u8 bytes, Op op, u64 pc) {
    Block* block = current();
    if (!block) return;
    if (is_local(reinterpret_cast<u64>(address)) && is_own(*block, reinterpret_cast<u64>(address))) {
        if (guarded) guard_access(*block, reinterpret_cast<u64>(address), bytes, op, pc, reinterpret_cast<u64>(__builtin_frame_address(0)));
        return;
    }
    block->thread->pc = pc;
    block->thread->frame = u32(reinterpret_cast<u64>(__builtin_frame_address(0)));
    if (block->launch->lanes_meet.load(std::memory_order_relaxed)) meet(*block);
    record_access(*block, reinterpret_cast<u64>(address), bytes, op, pc);
}

// Any size; in parts of 16 bytes or less. A profile has them no wider than the type is aligned, as nvcc's.
void record_range(u64 address, u64 bytes, Op op, u64 pc, u64 alignment = 16);

// The current thread's turn is over: returns at its next one.
void end_turn(Block& block, u64 pc, u64 depth);

}  // namespace lk
