// cluster.h: blocks that run together and see each other's shared memory; mbarriers; bulk copies that are under way.
//
// Blocks of a cluster share one OS thread. The one that runs has the storage behind __shared__; the others' contents lie in
// their images, at fixed addresses, which is where map_shared_rank leads.
#pragma once

#include <cstring>

#include "async_checks.h"
#include "engine.h"
#include "tensor_box.h"

namespace lk {

// A phase ends when all arrivals have come and as many bytes as were expected.
struct Mbarrier {
    unsigned phase = 0;   // that is under way: what waiting threads watch
    u32 expected = 0;     // arrivals of a phase
    i64 pending = 0;      // arrivals that are missing in this phase
    i64 bytes = 0;        // expected and not copied in this phase
    i64 told = 0;         // expected in this phase
    i64 told_before = 0;  // in the phase before
    u64 flying = 0;       // bytes of copies that were started in this phase
    u64 landed = 0;       // in phases that have ended and that no thread has waited for
    // check
    Actor maker;
    u64 made = 0;         // when
    u32 made_clock = 0;   // of its warp
    bool unordered = false;  // reported: used by a thread that nothing orders after its maker
    Clocks arriving;      // what this phase's arrivals publish, and all before them
    Clocks ended[4];      // by phase: what is known when it has ended
    std::vector<unsigned> waited;  // by warp of the block: 1 + the phase of its last wait by parity
    Actor repeated;                // that waited again for a phase that it had waited for: its parity may be wrong
};

// From global memory into shared memory of a block or of several, or back.
struct BulkCopy {
    char* to = nullptr;            // in global memory; else in shared memory of a block
    Block* to_home = nullptr;
    u64 to_offset = 0;
    const char* from = nullptr;
    Block* from_home = nullptr;
    u64 from_offset = 0;
    u64 bytes = 0;
    Block* barrier_home = nullptr;  // of the mbarrier that it tells; nullptr: it belongs to a bulk group
    u64 barrier = 0;                // its offset there
    unsigned phase = 0;
    u32 group = 0;
    Actor by;
    void (*combine)(char* to, const char* from, unsigned long bytes) = nullptr;  // a reduction
    std::shared_ptr<const TensorBox> box;  // of a copy with a tensor map, which says where in global memory it is
};

// bar.sync of a part of the block.
struct NamedBarrier {
    unsigned phase = 0;
    u32 arrived = 0;
    Clocks arriving;  // check
    Clocks ended;
};

struct Cluster {
    std::vector<Block*> blocks;            // by rank
    Block* running = nullptr;              // whose shared memory is in its place
    lk_uint3 extent{1, 1, 1};
    unsigned barrier_phase = 0;            // of barrier.cluster: what waiting threads watch
    bool arrivals = false;                 // some thread has arrived and the phase has not ended
    u64 events = 0;                        // arrivals, copies, ends of blocks: what others may have waited for
    std::vector<BulkCopy> under_way;
    std::unique_ptr<AsyncChecks> checks;   // check
};

inline Actor actor(const Block& block) { return {block.rank, block.thread_number, block.thread->pc}; }

// Tells mbarriers of a cluster apart.
inline u64 barrier_key(const Block& home, u64 offset) { return u64{home.rank} << 32 | offset; }

// cluster.cpp
void start_cluster(Cluster& cluster);
// The block, and the offset in its shared memory, that an address of this cluster's shared memory means; nullptr for none.
Block* home_of(Block& block, u64 address, u64* offset);
bool is_remote(Block& block, u64 address);
// Ends the phase of barrier.cluster when all threads that have not ended have arrived.
bool complete_cluster_barrier(Cluster& cluster);
// Names a thread that waits for the cluster, and one that does not come.
bool report_stuck_cluster(Cluster& cluster);

// mbarrier.cpp
// The mbarrier at an address, and the block and the offset of it. Where no thread has made one, the launch ends.
Mbarrier& barrier_at(Block& block, const void* at, Block** home, u64* offset);
void complete_bytes(Block& home, u64 barrier, unsigned phase, i64 bytes, const Actor& by);
// Lets threads go on without the phase that they wait for: try_wait may give up. False when that has led to nothing.
bool give_up_waits(Block& block);
// Names the phase that never ends, where a thread of the block waits for one.
bool report_stuck_barrier(Block& block);

// bulk.cpp
// The block and the offset of `bytes` of shared memory; the launch ends where there are not as many.
Block& shared_side(Block& block, u64 address, u64 bytes, Op op, u64* offset);
void record_global(Block& block, u64 address, u64 bytes, Op op);
// Starts a copy of `copy.bytes`, which fill or are read from `shared_bytes` of shared memory.
void launch_load(Block& block, BulkCopy& copy, u64 shared_bytes, void* barrier);
void launch_store(Block& block, BulkCopy& copy, u64 shared_bytes);
void make_copies(Cluster& cluster);
void end_copies(Block& block);  // when a block has ended
// op: load for a product that reads, where nothing is copied.
void report_conflict(Block& block, const Conflict& conflict, FindingKind kind, const Actor& by, u64 bytes, Op op = Op::store);

}  // namespace lk
