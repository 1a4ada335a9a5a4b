// engine.h: how a launch is run: Launch > Block > Warp > Thread, and the calls between the engine and the recorder.
//
// OS threads of a persistent pool take blocks. A thread of a block is a fiber; a barrier, a warp operation and a wait switch
// to another fiber. A block stays on its OS thread, because __shared__ variables are that thread's thread-local storage.
//
// check and profile run the instrumented build. check looks at every access as it happens. profile writes a trace of each
// lane's basic blocks and accesses, a window at a time, and lays the windows of a warp side by side (lockstep.cpp): lanes at
// the same basic block become one step, their accesses one request. No fiber switch is needed for that, and the counts do not
// depend on the order in which lanes ran.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#define LK_WORKER
#include "abi.h"
#include "fiber.h"

namespace lk {

using u8 = uint8_t;
using u16 = uint16_t;
using u32 = uint32_t;
using u64 = uint64_t;

constexpr u32 kWarpSize = 32;
constexpr u32 kMaxThreads = 1024;

enum class Mode : u32 { run, check, profile };
enum class Op : u8 { load, store, atomic };

enum class State : u8 { fresh, ready, at_block_barrier, at_warp_operation, at_meeting, waiting, at_grid_barrier, done };

struct Recorder;      // of one OS thread: counts (part of the recorder)
struct SharedShadow;  // of one block: who last touched each byte of shared memory (part of the recorder)
struct WarpOperation;
struct Trace;
struct Worker;
struct Block;

// A loaded kernel.so.
struct Module {
    void* handle = nullptr;
    u64 text_begin = 0;
    u64 text_end = 0;
    u32 shared_bytes = 0;  // of its thread-local segment: static __shared__ arrays, and room for the dynamic one
    char* (*shared_anchor)() = nullptr;
    bool instrumented = false;
};

struct Thread {
    Fiber* fiber = nullptr;
    lk_uint3 index{};
    State state = State::fresh;
    int barrier_site = 0;
    int predicate = 0;
    u64 pc = 0;                                    // where it waits
    u64 frame_depth = 0;                           // bytes of stack below its fiber's top, where it waits
    WarpOperation* operation = nullptr;            // while at_warp_operation; lies on the fiber's own stack
    const unsigned* watched = nullptr;             // while waiting: until *watched != watched_value
    unsigned watched_value = 0;
};

struct Warp {
    u32 lanes = 0;                 // that exist
    u32 epoch = 0;                 // counts warp barriers and warp operations of any of its lanes
    Trace* trace = nullptr;        // profile: held while the warp has something to replay
};

struct Launch {
    // What to run.
    const Module* module = nullptr;
    void (*run)(void** arguments) = nullptr;
    void** arguments = nullptr;
    lk_uint3 grid{1, 1, 1};
    lk_uint3 block{1, 1, 1};
    u32 shared_bytes = 0;          // dynamic
    Mode mode = Mode::run;
    u64 seed = 0;                  // 0: threads, warps and blocks in their natural order
    u64 sample_blocks = 0;         // 0: every block; else so many, evenly spread
    double timeout_seconds = 60;
    const std::atomic<bool>* cancelled = nullptr;

    // What came of it.
    double seconds = 0;
    u64 blocks_total = 0;
    u64 blocks_run = 0;
    std::atomic<u64> barriers{0};       // block-wide, summed over blocks
    std::atomic<u64> warp_barriers{0};
    std::atomic<bool> stopped{false};   // by a finding that is fatal, by the timeout, by the user
    std::atomic<bool> timed_out{false};

    u32 thread_count() const { return block.x * block.y * block.z; }
    u64 block_count() const { return u64(grid.x) * grid.y * grid.z; }
};

// One block while it is resident on an OS thread.
struct Block {
    Launch* launch = nullptr;
    Worker* worker = nullptr;
    Recorder* recorder = nullptr;       // the recorder's
    SharedShadow* shared_shadow = nullptr;  // the recorder's: made in begin_block when null, kept when the Block is used again
    Mode mode = Mode::run;

    lk_uint3 index{};
    u64 number = 0;                     // linear, x fastest
    u32 thread_count = 0;
    u32 warp_count = 0;
    std::vector<Thread> threads;
    std::vector<Warp> warps;

    // The thread that runs now.
    Thread* thread = nullptr;
    u32 thread_number = 0;              // in the block, x fastest
    u32 warp_number() const { return thread_number / kWarpSize; }
    u32 lane() const { return thread_number % kWarpSize; }

    u32 barrier_epoch = 0;              // counts block barriers, and grid barriers too
    u32 grid_epoch = 0;                 // counts grid barriers
    int barrier_result = 0;

    // Shared memory of this OS thread: [begin, end) holds the static arrays and the room for the dynamic one, of which
    // [dynamic_begin, dynamic_end) belongs to this launch.
    u64 shared_begin = 0;
    u64 shared_end = 0;
    u64 dynamic_begin = 0;
    u64 dynamic_end = 0;
    std::vector<char> shared_image;     // its contents while another block of this OS thread runs

    u32 countdown = 0;                  // check: basic blocks until another thread gets a turn
};

// The block that runs on this OS thread, or nullptr outside kernels (static initialisers, host code).
extern thread_local Block* current_block __attribute__((tls_model("initial-exec")));
inline Block* current() { return current_block; }

// Runs the launch on the pool and returns when all blocks are done, or it was stopped. One launch at a time.
void run_launch(Launch& launch);
// How many OS threads take blocks: the CPUs that this process may use, or LK_CUDA_THREADS.
u32 pool_size();

// Ends the launch: for findings after which a kernel cannot go on. Called on the fiber of the thread at fault.
[[noreturn]] void stop_launch(Block& block);

// True for a kernel's own local variables: a stack of any fiber.
inline bool is_local(u64 address) { return address - stacks_begin < stacks_bytes; }

// The recorder, called by the engine. record.h has the rest of it.
//
// One warp-wide access: the lanes of mask did it together.
struct Request {
    u64 pc;                  // return address of the hook: just behind the access's own call
    u32 size;                // bytes a lane
    Op op;
    u32 mask;                // never 0
    u32 warp;                // in the block
    u64 address[kWarpSize];  // of the lanes in mask
};

void begin_launch(Launch& launch);   // on the launching thread, before any block
void end_launch(Launch& launch);     // on the launching thread, after all blocks
void begin_worker(Launch& launch, Block& block);  // on an OS thread, before a Block's first use in a launch: sets block.recorder
void begin_block(Block& block);      // block.index, number, shared_* are set
void end_block(Block& block);        // all its threads are done
// check: the current thread is about to access memory. May report, and may call stop_launch.
void record_access(Block& block, u64 address, u32 size, Op op, u64 pc);
// profile: in lockstep order.
void record_step(Block& block, u32 warp, u64 pc, u32 mask);   // the lanes of mask enter one basic block together
void record_request(Block& block, const Request& request);
// check: order between threads.
void record_block_barrier(Block& block);                         // barrier_epoch has been counted up
void record_warp_barrier(Block& block, u32 warp, u32 mask);      // warp.epoch has been counted up
void record_grid_barrier(Block& block);                          // once in every block; grid_epoch, barrier_epoch counted up
void record_release(Block& block, u64 object);
void record_acquire(Block& block, u64 object);

}  // namespace lk
