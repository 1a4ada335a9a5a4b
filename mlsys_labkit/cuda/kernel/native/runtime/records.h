// records.h: what a launch leaves behind, as plain structs that cross to Python.
//
// No member is padded. Mirrored as numpy dtypes in simulator/decode.py; the sizes are compared when the worker starts.
// A program counter (pc) is an address in the kernel's object file: the one after the call of a hook, 0 when there is none.
// Blocks and threads are linear indices, x fastest; kNobody when there is none.
#pragma once

#include <cstdint>

namespace lk {

constexpr uint64_t kNobody = ~uint64_t{0};

enum class Space : uint32_t { global = 0, shared = 1, local = 2, constant = 3 };

// compare: an atomic that may leave the word as it is (compare-and-swap, minimum, maximum). atomic_store: one that does not
// ask what was there.
enum class Op : uint32_t {
    load = 0,
    store = 1,
    atomic = 2,
    compare = 3,
    volatile_load = 4,
    volatile_store = 5,
    atomic_store = 6,
    exchange = 7  // an atomic whose caller may have no use for what was there
};

enum class FindingKind : uint32_t {
    out_of_bounds = 1,
    shared_out_of_bounds,
    uninitialized_shared,
    shared_race,
    global_race,
    divergent_barrier,
    exited_before_barrier,
    absent_lane,
    division_by_zero,
    stack_overflow,
    timeout,
    assertion,
    trap,
    illegal_address,
    misaligned,
    unfinished_copy,
    uninitialized_global,
    index_out_of_bounds,
    early_overwrite,      // a bulk copy starts into what others may still read, or another copy still writes
    source_in_use,        // a write to what a bulk copy may still read
    missing_proxy_fence,  // values[0]: what is not visible to a copy, 0 an mbarrier, else data
    misaligned_copy,      // values: 1 destination, 2 source, 3 size; and the rest
    byte_count,           // values: bytes expected, and beyond them; begin: the phase
    stuck_barrier,        // values: arrivals and bytes that are missing; begin: the phase; end: all arrivals; bytes: all bytes
    unset_barrier,
    surplus_arrival,      // values[0]: arrivals of a phase
    abandoned_copy,       // values: whether it is committed, whether it is a store
    cluster_peer,         // values: a rank that is not there, and how many are; 0, 0: a block that has ended or not begun
    tensor_map,           // values[0]: 1 no tensor map, 2 its rank is values[1], 3 shared memory values[1] bytes behind 128
    matrix_descriptor,    // values: 1 the right operand, and where it leads, from the start of shared memory; bytes: all of that
    pending_result,       // values[0]: whether its group is committed
    operand_in_use,       // values[0]: whether the group of the wgmma is committed
    uninitialized_variable,  // text: the name of a local variable; values[0]: the line of its declaration
};

constexpr uint32_t kNamedOnly = 1;  // bytes of absent_lane: the mask names the lane, and no value of it is read

struct FindingRecord {
    uint32_t kind;
    uint32_t op;        // of the access at pc
    uint32_t other_op;  // of the access at other_pc
    uint32_t bytes;     // of the access at pc
    uint64_t pc;
    uint64_t other_pc;
    uint64_t block;
    uint64_t thread;
    uint64_t other_block;
    uint64_t other_thread;
    uint64_t address;  // global memory: absolute; shared memory: from the start of the thread-local segment
    uint64_t begin;    // of the buffer nearest to address, 0 when there is none
    uint64_t end;
    uint64_t count;    // how often it happened
    uint32_t values[2];  // what the message needs besides: masks, numbers of threads; misaligned: 1 in shared memory
    char text[128];      // of an assertion, or the type of an array; ends in 0
};

// What one memory instruction of the source did, over all warps.
struct SiteCount {
    uint64_t pc;
    uint32_t space;
    uint32_t op;
    uint32_t bytes_per_lane;
    uint32_t worst;  // most sectors (global, local) or wavefronts (shared, constant) in one request
    uint64_t requests;
    uint64_t lanes;
    uint64_t sectors;     // global, local: distinct 32-byte sectors, summed over requests
    uint64_t wavefronts;  // shared: passes over the banks; global atomics: most lanes on one address; constant: addresses
    uint64_t ideal_sectors;
    uint64_t ideal_wavefronts;
};

// How often a basic block ran, and with how many lanes in all.
struct StepCount {
    uint64_t pc;
    uint64_t steps;
    uint64_t lanes;
};

struct RequestSample {
    uint64_t pc;
    uint32_t space;
    uint32_t op;
    uint32_t bytes_per_lane;
    uint32_t mask;  // active lanes
    uint64_t block;
    uint64_t warp;
    uint64_t addresses[32];  // global memory: absolute; shared memory: from the start of the thread-local segment
};

// One device buffer that was touched. The bitmap of bytes that stores wrote (bit 0 of byte 0 is the buffer's first byte)
// stands at written_offset in the section, after all BufferUse.
struct BufferUse {
    uint64_t begin;
    uint64_t end;
    uint64_t bytes_read;  // distinct
    uint64_t bytes_written;
    uint64_t written_offset;
};

struct Totals {
    uint64_t blocks_run;
    uint64_t blocks_total;
    uint64_t block_barriers;
    uint64_t warp_barriers;
    uint64_t bulk_copies;
    uint64_t bulk_bytes_in_flight;  // most that one block had started to load and not waited for
    uint64_t steps;  // basic blocks, counted once a warp
    uint64_t active_lanes;
    uint64_t bytes_read;  // distinct bytes of global memory
    uint64_t bytes_written;
    uint64_t findings_dropped;  // different ones beyond the cap
    uint64_t buffers;           // BufferUse that follow in the section
};

}  // namespace lk
