// scheduler.h: what the files of the engine share: turns of lanes, waits, and the OS thread that runs blocks.
#pragma once

#include "lockstep.h"

namespace lk {

// How many basic blocks a thread runs before others get a turn, where something may be spinning.
constexpr u32 kLongTurn = 1 << 16;
constexpr u32 kShortTurn = 1 << 11;
// How many basic blocks lanes wait at a meeting while others of their warp run: more than the work of lanes differs by. A lane
// that has not come by then is taken to spin for a lock that a lane at the meeting holds.
constexpr u32 kMeetingWait = 1 << 18;

// How many threads before its turn a thread's stack is asked for from memory.
constexpr u32 kAhead = 3;

// An OS thread of the pool, as far as the blocks on it are concerned.
struct Worker {
    void* scheduler = nullptr;  // the stack pointer of its own stack while a fiber runs
    std::vector<Fiber*> free_fibers;
    std::vector<std::unique_ptr<Trace>> free_traces;
    u32 turn = kLongTurn;        // how long a turn is now, in basic blocks
    std::atomic<u64> turns{0};   // counts them, for the monitor
};

// waiting: for other blocks of its cluster.
enum class Outcome { finished, at_grid_barrier, spinning, waiting, stopped };

// block.cpp
void start_block(Block& block, u64 number);
// Runs a block until it is done or cannot go on without other blocks.
Outcome run_block(Block& block);
// Reports why no thread of the block can go on, and no other block can help.
void report_deadlock(Block& block);

// warp.cpp
// Runs a warp until no lane of it can go on, or its turn is over.
void run_warp(Block& block, u32 warp);
// From a fiber: waits until all lanes of the warp that can come here have come; those at one place go on together.
u32 meet(Block& block);
// Explains the first lane that waits for a warp operation which can never happen. False when there is none.
bool report_stuck_operation(Block& block);

// turns.cpp
void give_turns(Block& block, u32 warp, u32 lanes);  // from the scheduler: returns when each has run
// From the scheduler: runs all threads of a block that has not begun in a loop. False when one of them waited: turns go on.
bool loop_over_threads(Block& block);
void leave_loop(Block& block);                       // from a fiber: the thread that runs will wait
void pause(Block& block);                            // from a fiber: until its next turn
void abandon_block(Block& block);                    // that was stopped: takes its fibers back

// lockstep.cpp
void take_trace(Worker& worker, Warp& warp);
void give_trace_back(Worker& worker, Warp& warp);
void trace_resume(Block& block);  // the current thread goes on after a wait

// In a function that a kernel calls: notes where the kernel stands, for reports and for putting lanes side by side.
__attribute__((always_inline)) inline Block& enter_runtime() {
    Block& block = *current();
    block.thread->pc = reinterpret_cast<u64>(__builtin_return_address(0));
    block.thread->frame = u32(reinterpret_cast<u64>(__builtin_frame_address(0)));
    return block;
}

// The recorder of the block that runs on this OS thread, where it looks for races; else nullptr.
inline Recorder* checker() {
    Block* block = current();
    return block && block->mode == Mode::check ? block->recorder.get() : nullptr;
}

// findings: about the thread that runs, or another one. pc is absolute, just behind the instruction meant; 0: none.
FindingRecord make_finding(const Block& block, FindingKind kind, u32 thread_number, u64 pc);
inline FindingRecord make_finding(const Block& block, FindingKind kind) {
    return make_finding(block, kind, block.thread_number, block.thread->pc);
}
u64 file_pc(const Block& block, u64 pc);

// From a fiber: no more turns until another thread makes it ready again.
__attribute__((always_inline)) inline void wait_in(Block& block, u32 Warp::*state) {
    if (block.in_loop) {
        block.launch->threads_wait.store(true, std::memory_order_relaxed);
        leave_loop(block);
    }
    Warp& warp = block.warps[block.warp];
    const u32 bit = 1u << block.thread_number % kWarpSize;
    warp.ready &= ~bit;
    warp.*state |= bit;
    pause(block);
    if (block.trace) trace_resume(block);
}

inline u32 current_bit(const Block& block) { return 1u << block.lane(); }
inline bool stopped(const Block& block) { return block.launch->stopped.load(std::memory_order_relaxed); }
inline u32 lowest_lane(u32 mask) { return u32(__builtin_ctz(mask)); }

}  // namespace lk
