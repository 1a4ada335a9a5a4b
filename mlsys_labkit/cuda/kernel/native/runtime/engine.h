// engine.h: how a launch is run: Launch > Block > Warp > Thread.
//
// OS threads of a persistent pool take blocks. A thread of a block is a fiber from its first wait on, and shares one with those
// before it until then (turns.cpp); a barrier, a warp operation and a wait switch to another fiber. A block stays on its OS thread, because __shared__ variables are that thread's thread-local storage.
//
// check and profile run the instrumented build. check looks at every access as it happens. profile writes a trace of each
// lane's basic blocks and accesses, a window at a time, and lays the windows of a warp side by side (lockstep.cpp): lanes at
// the same basic block become one step, their accesses one request. No fiber switch is needed for that, and the counts do not
// depend on the order in which lanes ran.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#define LK_WORKER
#include "abi.h"
#include "fiber.h"
#include "findings.h"
#include "record.h"
#include "seeded_order.h"

namespace lk {

using u8 = uint8_t;
using u16 = uint16_t;
using u32 = uint32_t;
using u64 = uint64_t;
using i64 = int64_t;

constexpr u32 kWarpSize = 32;
constexpr u32 kMaxThreads = 1024;

enum class Mode : u32 { run, check, profile };

struct Trace;
struct LaneTrace;
struct Worker;
struct Block;
struct Cluster;
struct Mbarrier;
struct NamedBarrier;

// A loaded kernel.so.
struct Module {
    void* handle = nullptr;
    AddressRange text;     // its code
    u32 shared_bytes = 0;  // of its thread-local segment: static __shared__ arrays, and room for the dynamic one
    char* (*shared_anchor)() = nullptr;
    bool instrumented = false;
    bool is_asynchronous = false;  // it uses clusters, mbarriers, bulk copies or named barriers

    char* shared_segment() const;  // the calling OS thread's
};

// A result of wgmma in variables of a thread: nothing may touch it until its group has been waited for.
struct PendingResult {
    u64 begin = 0;
    u64 end = 0;
    u32 group = 0;
    u64 pc = 0;
};

enum class Operation : u8 { barrier, ballot, shuffle, match, gather, product };

// What a lane asks of its warp, and what comes of it.
struct WarpOperation {
    Operation kind;
    bool predicate;
    u32 mask;
    int size;
    int mode;
    int argument;
    int width;
    const void* value;
    void* result;
    // A value of up to 8 bytes, and what becomes of it: nobody needs to look on another lane's stack.
    u64 word;
    u64 answer_word;
    u32 answer;
};

// What each wait reads and writes lies in its first cache line, and an operation of its warp in the second one.
struct alignas(64) Thread {
    lk_uint3 index{};
    u32 frame = 0;                           // the lower half of the address of the stack frame where it waits
    Fiber* fiber = nullptr;                  // nullptr before the thread begins and after it ends
    void* stack_pointer = nullptr;           // where the fiber goes on
    // Where and for what it waits.
    u64 pc = 0;
    const unsigned* watched = nullptr;       // until *watched != watched_value
    unsigned watched_value = 0;
    int barrier_site = 0;
    u32 patience = 0;                        // how often others were let go from a meeting before it

    alignas(64) WarpOperation operation{};

    const Mbarrier* awaited = nullptr;       // whose phase it watches
    bool in_cluster = false;                 // it watches barrier.cluster
    bool at_named = false;                   // it watches a named barrier
    bool may_give_up = false;                // try_wait
    bool gave_up = false;
    u64 gave_up_at = 0;                      // 1 + events of the cluster by then
    u32 bulk_groups = 0;                     // committed
    u32 product_groups = 0;                  // of wgmma, committed
    std::vector<PendingResult> pending;      // check: results of wgmma that it has not waited for
    u32 cluster_arrivals = 0;
    std::vector<AddressRange> local_arrays;  // profile: on its stack, which a GPU would keep in local memory

    // Bytes of stack in use where it waits.
    u32 frame_depth() const { return u32(reinterpret_cast<u64>(fiber->top)) - frame; }
};

// Which lanes are in which state; each lane that exists is in exactly one.
struct Warp {
    u32 lanes = 0;  // that exist
    u32 ready = 0;
    u32 at_block_barrier = 0;
    u32 at_operation = 0;
    u32 at_meeting = 0;
    u32 at_grid_barrier = 0;
    u32 waiting = 0;
    u32 done = 0;

    u32 met = 0;                // the lanes last let go from a meeting together
    u32 meeting_waits = 0;      // basic blocks that others may have run since lanes came to a meeting
    Trace* trace = nullptr;     // profile: what its lanes did and has not been replayed

    u32 products = 0;                  // of wgmma, made
    std::vector<u32> products_before;  // by group: how many there were when it was committed
};

struct Launch {
    // What to run.
    const Module* module = nullptr;
    void (*run)(void** arguments) = nullptr;
    void** arguments = nullptr;
    lk_uint3 grid{1, 1, 1};
    lk_uint3 block{1, 1, 1};
    lk_uint3 cluster{1, 1, 1};     // blocks
    u32 shared_bytes = 0;          // dynamic
    Mode mode = Mode::run;
    u64 seed = 0;                  // 0: threads, warps and blocks in their natural order
    u64 sample_blocks = 0;         // 0: every block; else so many, evenly spread
    double timeout_seconds = 60;                     // 0: none
    const std::atomic<bool>* cancelled = nullptr;    // by the user
    LaunchDescription description;                   // what the recorder needs to know besides (text, data, shared_arrays ...)

    // What came of it.
    Findings findings;
    std::unique_ptr<LaunchRecord> record;  // check and profile
    const char* failure = nullptr;         // why the engine gave up, where that is no fault of the kernel's
    bool timed_out = false;
    std::atomic<bool> stuck{false};  // timed out, and some OS thread had long finished no block
    double seconds = 0;
    u64 blocks_run = 0;
    std::atomic<bool> threads_wait{false};  // some thread has waited: no more loops over threads
    std::atomic<bool> lanes_meet{true};  // before volatile accesses, as long as no thread is held up by it
    std::atomic<bool> stopped{false};   // by a finding after which nothing can go on, by the timeout, by the user

    u32 thread_count() const { return block.x * block.y * block.z; }
    u64 block_count() const { return u64(grid.x) * grid.y * grid.z; }
    u32 cluster_size() const { return cluster.x * cluster.y * cluster.z; }
};

// One block while it is resident on an OS thread.
struct Block {
    Launch* launch = nullptr;
    Worker* worker = nullptr;
    std::unique_ptr<Recorder> recorder;  // check and profile
    Mode mode = Mode::run;

    lk_uint3 index{};
    u64 number = 0;                     // linear, x fastest
    Random random{1};                   // its own: which OS thread runs it is chance, and a seed's order is not
    bool shuffled() const { return launch->seed != 0; }
    bool in_order = false;              // neither shuffled nor traced
    bool may_loop = false;              // in order, and nothing looks at single threads
    u32 thread_count = 0;
    u32 warp_count = 0;
    std::vector<Thread> threads;        // and some that are never used: the switch looks ahead
    std::vector<Warp> warps;

    // The thread that runs now.
    Thread* thread = nullptr;
    u32 thread_number = 0;              // in the block, x fastest
    LaneTrace* trace = nullptr;         // profile: its own
    u32 countdown = 0;                  // basic blocks until another thread gets a turn
    u32 turns = 0;                      // lanes of this warp that run before the scheduler does
    i64 warp_budget = 0;                // what is left of the warp's turn, in basic blocks
    u32 warp = 0;                       // its warp
    u32 lane() const { return thread_number % kWarpSize; }

    // Threads that run one after another in a loop of the kernel's own, until the first of them waits. Then `thread` is the one
    // that settle() has found last, and the masks of the warps know nothing yet of those that have ended.
    bool in_loop = false;
    u32 loop_left = 0;                  // threads behind the one that runs; 0 where there is no loop

    struct Arrivals {
        u32 count = 0;                  // threads at the block barrier
        u32 yes = 0;                    // with a predicate that is true
        int site = 0;                   // of the last one
        bool differ = false;            // not all at the same barrier
    };
    Arrivals arrivals;
    u32 barrier_count = 0;              // threads whose predicate was true at the last barrier
    bool barrier_all = false;           // whether all threads' was
    u32 done = 0;                       // threads that have ended

    // The kernel's thread-local segment on this OS thread: static __shared__ arrays, and room for the dynamic one.
    u64 shared_begin = 0;
    u64 shared_end = 0;
    std::vector<char> shared_image;     // its contents while another block of this OS thread runs
    bool at_grid_barrier = false;
    u64 grid_generation = 0;            // which one

    Cluster* cluster = nullptr;         // of one block, where the launch has none
    u32 rank = 0;                       // in it
    bool begun = false;                 // in this cluster
    bool ended = false;
    u64 events_seen = 0;                // of the cluster when the block could not go on; 0: it can
    std::unordered_map<u64, Mbarrier> mbarriers;  // by offset in shared memory
    std::unordered_map<u32, NamedBarrier> named;
    u64 flying = 0;                     // bytes of copies into its shared memory that no thread has waited for
};

// The block that runs on this OS thread, or nullptr outside kernels (static initialisers, host code).
extern thread_local Block* current_block __attribute__((tls_model("initial-exec")));
void settle(Block& block);
inline Block* current() {
    Block* block = current_block;
    if (block && block->in_loop) settle(*block);
    return block;
}

// Why the launch cannot have its cluster; nullptr where it can.
const char* wrong_cluster(const Launch& launch);
// Runs the launch on the pool and returns when all blocks are done, or it was stopped. One launch at a time.
void run_launch(Launch& launch);
void start_pool();  // else the first launch does
// How many OS threads take blocks: the CPUs that this process may use, or LK_CUDA_THREADS.
u32 pool_size();

// Ends the launch: for findings after which a kernel cannot go on. Called on the fiber of the thread at fault.
[[noreturn]] void stop_launch(Block& block);

}  // namespace lk
