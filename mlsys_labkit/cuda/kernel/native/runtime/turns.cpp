// turns.cpp: fibers of a warp run one after another; each hands over to the next without coming back to the scheduler. Threads
// that do not wait share a fiber: one runs after another in a loop of the kernel's module.
#include "guard.h"
#include "lockstep.h"
#include "scheduler.h"

thread_local lk_uint3 lk_thread_index __attribute__((tls_model("initial-exec")));
thread_local lk_uint3 lk_block_index __attribute__((tls_model("initial-exec")));
thread_local lk_uint3 lk_block_extent __attribute__((tls_model("initial-exec")));
thread_local lk_uint3 lk_grid_extent __attribute__((tls_model("initial-exec")));

namespace lk {

thread_local Block* current_block = nullptr;

namespace {

void fiber_main();

Fiber* take_fiber(Worker& worker) {
    if (worker.free_fibers.empty()) return make_fiber(fiber_main);
    Fiber* fiber = worker.free_fibers.back();
    worker.free_fibers.pop_back();
    return fiber;
}

u32 pick_lane(Block& block, u32 lanes) {
    if (!block.shuffled()) return lowest_lane(lanes);
    u32 rotation = block.random.next() % kWarpSize;
    u32 rotated = rotation ? lanes >> rotation | lanes << (kWarpSize - rotation) : lanes;
    return (lowest_lane(rotated) + rotation) % kWarpSize;
}

// In the natural order and without a trace, what follows for the next lane is short.
inline Thread* next_in_order(Block& block) {
    return block.turns && block.in_order ? &block.threads[block.warp * kWarpSize + lowest_lane(block.turns)] : nullptr;
}

inline void turn_to(Block& block, Thread& thread) {
    const char* ahead = static_cast<const char*>((&thread)[kAhead].stack_pointer);
    for (int line = 0; line < 4; line++) __builtin_prefetch(ahead + 64 * line);
    block.thread_number = block.warp * kWarpSize + lowest_lane(block.turns);
    block.turns &= block.turns - 1;
    block.thread = &thread;
    block.countdown = block.worker->turn;
    lk_thread_index = thread.index;
    std::atomic<u64>& turns = block.worker->turns;
    turns.store(turns.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

// The next lane to run becomes the current thread. `spare` is a fiber that has nothing more to do, or nullptr; it is used
// for a thread that begins, else left to the free list. nullptr: no lane is left, or there is no stack for it.
Thread* next_turn(Block& block, Fiber* spare) {
    Worker& worker = *block.worker;
    Thread* thread = nullptr;
    if (block.turns) {
        u32 lane = pick_lane(block, block.turns);
        block.turns &= ~(1u << lane);
        block.thread_number = block.warp * kWarpSize + lane;
        thread = &block.threads[block.thread_number];
        if (!thread->fiber) {
            thread->fiber = spare ? spare : take_fiber(worker);
            if (thread->fiber) thread->stack_pointer = thread->fiber->stack_pointer;
            spare = nullptr;
        }
    }
    if (spare) worker.free_fibers.push_back(spare);
    if (!thread) return nullptr;
    if (!thread->fiber) {
        block.launch->failure = "too many threads wait at once: no stack is left for another one";
        block.launch->stopped = true;
        return nullptr;
    }
    block.thread = thread;
    block.countdown = worker.turn;
    Trace* trace = block.warps[block.warp].trace;
    block.trace = trace ? &trace->lanes[block.lane()] : nullptr;
    lk_thread_index = thread->index;
    worker.turns.store(worker.turns.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    return thread;
}

void* stack_of(const Block& block, const Thread* next) { return next ? next->stack_pointer : block.worker->scheduler; }

// From the fiber of a loop that has run all threads: back to the scheduler, until the fiber is used again.
void end_loop(Block& block) {
    settle(block);
    block.in_loop = false;
    for (Warp& warp : block.warps) {
        warp.done = warp.lanes;
        warp.ready = 0;
    }
    Fiber* self = block.thread->fiber;
    block.thread->fiber = nullptr;
    block.worker->free_fibers.push_back(self);
    lk_switch(&self->stack_pointer, block.worker->scheduler);
}

// Runs one thread of a kernel after another: whichever is current.
void fiber_main() {
    for (;;) {
        Block& block = *current_block;
        Thread& thread = *block.thread;
        thread.pc = 0;
        thread.frame = u32(reinterpret_cast<u64>(thread.fiber->top));
        if (block.trace) trace_resume(block);
        if (guarded && block.trace) clear_stack(*thread.fiber);
        lk_enter(block.launch->run, block.launch->arguments, &thread.fiber->limit);
        if (block.in_loop) {
            end_loop(block);
            continue;
        }
        Thread& ended = *block.thread;  // the first one of a loop has ended long ago
        Warp& warp = block.warps[block.warp];
        warp.ready &= ~current_bit(block);
        warp.done |= current_bit(block);
        Fiber* self = ended.fiber;
        ended.fiber = nullptr;
        ended.local_arrays.clear();
        if (Thread* begun = next_in_order(block); begun && !begun->fiber) {
            begun->fiber = self;
            turn_to(block, *begun);
            continue;
        }
        const Thread* next = next_turn(block, self);
        if (!next || next->fiber != self) lk_switch(&self->stack_pointer, stack_of(block, next));
    }
}

}  // namespace

void give_turns(Block& block, u32 warp, u32 lanes) {
    block.warp = warp;
    block.turns = lanes;
    if (const Thread* first = next_turn(block, nullptr)) lk_switch(&block.worker->scheduler, first->stack_pointer);
}

bool loop_over_threads(Block& block) {
    block.warp = 0;
    block.turns = block.warps[0].ready;
    const Thread* first = next_turn(block, nullptr);
    if (!first) return false;
    block.in_loop = true;
    block.loop_left = block.thread_count - 1;
    lk_switch(&block.worker->scheduler, first->stack_pointer);
    return !block.in_loop && block.warps[block.warp_count - 1].done == block.warps[block.warp_count - 1].lanes;
}

void settle(Block& block) {
    const u32 number = block.thread_count - 1 - block.loop_left;
    if (number == block.thread_number) return;
    Thread& thread = block.threads[number];
    thread.pc = 0;
    thread.fiber = block.thread->fiber;
    block.thread->fiber = nullptr;
    block.thread = &thread;
    block.thread_number = number;
    block.warp = number / kWarpSize;
}

void leave_loop(Block& block) {
    settle(block);
    block.in_loop = false;
    block.loop_left = 0;
    for (u32 i = 0; i < block.warp; i++) {
        block.warps[i].done = block.warps[i].lanes;
        block.warps[i].ready = 0;
    }
    const u32 before = current_bit(block) - 1;
    Warp& warp = block.warps[block.warp];
    warp.done = warp.lanes & before;
    warp.ready &= ~before;
    block.turns = warp.ready & ~current_bit(block);
}

void pause(Block& block) {
    if (block.in_loop) leave_loop(block);
    void** self = &block.thread->stack_pointer;
    if (Thread* thread = next_in_order(block); thread && thread->fiber) {
        turn_to(block, *thread);
        lk_switch(self, thread->stack_pointer);
        return;
    }
    lk_switch(self, stack_of(block, next_turn(block, nullptr)));
}

void stop_launch(Block& block) {
    block.launch->stopped = true;
    void* abandoned;
    lk_switch(&abandoned, block.worker->scheduler);
    __builtin_unreachable();
}

void abandon_block(Block& block) {
    for (Thread& thread : block.threads) {
        if (!thread.fiber) continue;
        reset_fiber(thread.fiber, fiber_main);
        block.worker->free_fibers.push_back(thread.fiber);
        thread.fiber = nullptr;
        thread.local_arrays.clear();
    }
    for (Warp& warp : block.warps) {
        if (warp.trace) give_trace_back(*block.worker, warp);
    }
}

FindingRecord make_finding(const Block& block, FindingKind kind, u32 thread_number, u64 pc) {
    FindingRecord finding = new_finding(kind, block.number, thread_number);
    finding.pc = file_pc(block, pc);
    return finding;
}

u64 file_pc(const Block& block, u64 pc) { return pc ? pc - block.launch->description.object_address : 0; }

}  // namespace lk

using namespace lk;

int lk_next_thread() {
    Block& block = *current_block;
    if (!block.loop_left) return 0;
    block.loop_left--;
    if (++lk_thread_index.x == lk_block_extent.x) {
        lk_thread_index.x = 0;
        if (++lk_thread_index.y == lk_block_extent.y) {
            lk_thread_index.y = 0;
            lk_thread_index.z++;
        }
    }
    return 1;
}
