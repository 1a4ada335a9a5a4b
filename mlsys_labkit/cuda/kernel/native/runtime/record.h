// record.h: what the hooks and the scheduler tell of a launch, turned into counts (profile) and findings (check).
//
// One LaunchRecord a launch, made by the engine; one Recorder for each resident block.
// Neither depends on fibers: the engine passes the number of the thread that runs.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "address_range.h"
#include "async_checks.h"
#include "findings.h"
#include "records.h"
#include "touched.h"

namespace lk {

// A __shared__ array, as bytes from the start of the kernel's thread-local segment.
struct SharedArray {
    uint64_t offset;
    uint64_t bytes;
};

struct LaunchDescription {
    bool check = false;    // races, bounds, uninitialised reads
    bool profile = false;  // counts
    bool bulk_copies = false;  // the code has some, or products of warpgroups
    bool footprint = false;  // check: which bytes of which buffers it touches
    uint64_t blocks_total = 0;
    uint32_t threads_per_block = 0;
    uint64_t object_address = 0;            // where kernel.so is loaded: pc - object_address crosses to Python
    AddressRange text;                      // its code, absolute
    AddressRange data;                      // its variables, absolute
    AddressRange constants;                 // what the compiler made constant
    std::vector<AddressRange> constant_variables;  // __constant__: read through a cache of their own
    uint64_t shared_segment_bytes = 0;      // the kernel's thread-local segment
    std::vector<SharedArray> shared_arrays;  // static ones, and the dynamic one with the bytes of this launch
    AddressRange dynamic_shared;             // offsets of the dynamic shared memory that this launch has
    AddressRange shared_rest;                // offsets of the room for dynamic shared memory that this launch does not have
};

// Added to an offset in a thread's stack, where an array is that a GPU would keep in local memory.
constexpr uint64_t kLocalMemory = uint64_t{1} << 62;

// Whether the access may be carried out. stop: it would harm the worker; the engine ends the launch.
enum class Verdict { proceed, stop };

// One access that lanes of a warp made together.
struct Request {
    uint64_t pc;
    uint32_t bytes;  // a lane: 1, 2, 4, 8 or 16
    Op op;
    uint32_t mask;  // never 0
    uint32_t warp;  // in the block
    uint64_t addresses[32];  // of the lanes in mask; kLocalMemory + the offset in the stack of a lane
};

class LaunchRecord;
class Recorder;
struct Block;

// Of a block of the cluster: where its shared memory is when another one runs.
struct Peer {
    AddressRange image;
    Recorder* recorder;
    const Block* block;
    uint64_t number;  // of the block
};

// Of one block while it is resident; used again for the next one. (Blocks of a grid barrier share an operating-system thread.)
class Recorder {
public:
    // shared_segment: where this operating-system thread keeps the kernel's thread-local segment.
    Recorder(LaunchRecord& launch, uint64_t shared_segment);
    ~Recorder();
    Recorder(const Recorder&) = delete;
    Recorder& operator=(const Recorder&) = delete;

    // The blocks of the cluster, by rank; checks: nullptr in profile. Before begin_block.
    void join(AsyncChecks* checks, uint32_t rank, const std::vector<Peer>& peers);
    void begin_block(uint64_t block);
    void end_block();

    // Before the access happens. thread: linear in the block. Not for the thread's own stack.
    // bytes is 1, 2, 4, 8 or 16 and the type is aligned to it; anything else comes in parts.
    Verdict access(uint32_t thread, uint64_t address, uint32_t bytes, Op op, uint64_t pc);

    // profile: one access of a warp, which the engine has put together (lockstep.h); counts it. In profile the engine does
    // not call access, and for check neither request nor step.
    void request(const Request& request);
    // profile: the lanes in mask of one warp begin the basic block at pc (the address after its trace hook).
    void step(uint64_t pc, uint32_t mask);

    // Every live thread of the block has arrived, none has gone on.
    void block_barrier();
    // The same for __syncwarp over the lanes in mask. Shuffles and votes do not order memory and are not told.
    void warp_barrier(uint32_t warp, uint32_t mask);
    // __threadfence and its kin, by one thread.
    void fence(uint32_t thread);
    // All blocks of the cluster have arrived; after block_barrier of each of them.
    void cluster_barrier();
    // A bulk copy, started by the thread, reads the block's shared memory, or writes that of a block of the cluster.
    void read_by_copy(uint32_t thread, uint64_t address, uint32_t bytes, uint64_t pc);
    // looks: whether races with what was there before are looked for here: copies before it are for AsyncChecks.
    void filled_by_copy(Recorder& home, const Actor& by, uint64_t offset, uint32_t bytes, bool looks);
    // cuda::barrier: what a thread did before release(object) happened before what follows an acquire(object).
    void release(uint32_t thread, uint64_t object);
    void acquire(uint32_t thread, uint64_t object);

    // A bulk copy starts; in_flight: the bytes that the block has started to load and not waited for.
    void bulk_copy(uint64_t in_flight);
    // Asynchronous copies, see copies.h.
    void copy_started(uint32_t thread, uint64_t to, uint32_t bytes, uint64_t pc, uint64_t barrier, uint32_t phase);
    void copies_committed(uint32_t thread);
    void copies_awaited(uint32_t thread, uint32_t batches_left);
    void barrier_awaited(uint64_t barrier, uint32_t phase);

private:
    struct State;
    std::unique_ptr<State> state_;
};

class LaunchRecord {
public:
    LaunchRecord(const LaunchDescription& description, Findings& findings);
    ~LaunchRecord();
    LaunchRecord(const LaunchRecord&) = delete;
    LaunchRecord& operator=(const LaunchRecord&) = delete;

    // All blocks have arrived at a grid barrier and none has gone on.
    void grid_barrier();

    // After every Recorder is gone: reports what could only be decided at the end.
    void finish();
    // Where the description asks for the footprint. Then totals know nothing of it.
    std::vector<std::unique_ptr<TouchedBuffer>> take_footprint();
    // After finish. Empty where the launch was not profiled.
    std::vector<SiteCount> sites() const;
    std::vector<StepCount> steps() const;
    std::vector<RequestSample> samples() const;
    // Totals, then BufferUse, then bitmaps.
    std::vector<unsigned char> totals() const;

    struct State;
    State& state() { return *state_; }

private:
    std::unique_ptr<State> state_;
};

}  // namespace lk
