// recorder_state.h: what a launch's recording is made of: shared by the files that check, that count, and that tell the engine.
#pragma once

#include <algorithm>
#include <atomic>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "async_checks.h"
#include "copies.h"
#include "counts.h"
#include "device_heap.h"
#include "order.h"
#include "record.h"
#include "shadow_global.h"
#include "shadow_shared.h"
#include "sites.h"
#include "touched.h"

namespace lk {

constexpr uint64_t kNothing = 0;  // no address
constexpr uint64_t kRankStride = uint64_t{1} << 40;  // between the same variable of two blocks, as objects that order

inline bool writes(Op op) { return !is_load(op); }
inline bool reads(Op op) { return op != Op::store && op != Op::volatile_store && op != Op::atomic_store; }

inline bool is_constant_variable(const LaunchDescription& launch, uint64_t address, uint64_t bytes) {
    const auto holds = [&](const AddressRange& range) { return range.holds(address, bytes); };
    return std::any_of(launch.constant_variables.begin(), launch.constant_variables.end(), holds);
}

inline bool is_constant(const LaunchDescription& launch, uint64_t address, uint64_t bytes) {
    return launch.constants.holds(address, bytes) || is_constant_variable(launch, address, bytes);
}

struct LaunchRecord::State {
    State(const LaunchDescription& given, Findings& all)
        : description(given), findings(all), sites(given.text.begin, given.text.end - given.text.begin), counts(given.text) {}

    // may_be_rechecked: a plain read beside an atomic, see Sites::mark_rechecked; decided at the end.
    void report(const FindingRecord& found, bool may_be_rechecked = false) {
        (may_be_rechecked ? undecided : findings).report(may_be_rechecked ? found : relocated(found));
    }
    // Counts again an access that one of the lists holds.
    void repeat(const FindingRecord& found) {
        if (!undecided.count_again(found) && !unwritten.count_again(found)) findings.count_again(relocated(found));
    }
    // As Python gets it: places relative to the object file.
    FindingRecord relocated(FindingRecord finding) const {
        if (finding.pc) finding.pc -= description.object_address;
        if (finding.other_pc) finding.other_pc -= description.object_address;
        return finding;
    }

    const LaunchDescription description;
    Findings& findings;
    Findings undecided;  // places absolute
    Findings unwritten;  // uninitialised reads, the same
    Sites sites;
    Objects objects;
    std::vector<uint16_t> shared_owner;  // by byte of the segment: which array, from 1

    std::mutex mutex;
    Counts counts;
    std::vector<std::unique_ptr<TouchedBuffer>> touched;  // in the order of their addresses
    uint64_t blocks_run = 0;
    uint64_t block_barriers = 0;
    uint64_t warp_barriers = 0;
    uint64_t bulk_copies = 0;
    uint64_t bulk_in_flight = 0;  // most of one block
    // Where the thread of the operating system behind each Recorder is about to store in global memory.
    std::vector<const std::atomic<uint64_t>*> storing;
};

struct Recorder::State {
    State(LaunchRecord::State& of_launch, uint64_t segment)
        : launch(of_launch),
          shared_begin(segment),
          shared_bytes(launch.description.shared_segment_bytes),
          order(launch.objects, launch.description.threads_per_block),
          shared(launch.description.check ? shared_bytes : 0),
          copies(launch.description.threads_per_block, shared_bytes),
          counts(launch.description.profile ? launch.description.text : AddressRange{}),
          recent_reads(launch.description.check ? launch.description.threads_per_block : 0),
          shadow_of_site(launch.description.check ? Sites::kMost : 0) {}

    // A store that clashed with another store: a race unless it leaves the bytes as they are.
    struct Doubt {
        FindingRecord finding{};
        uint64_t key = 0;
        uint64_t address = kNothing;
        uint32_t bytes = 0;
        unsigned char before[16];
    };

    Verdict access(uint32_t thread, uint64_t address, uint32_t bytes, Op op, uint64_t pc);
    Verdict access_shared(const Present& now, State& home, uint64_t offset, uint32_t bytes, uint64_t pc);
    // The recording of the block whose shared memory holds the address, or nullptr.
    State* home_of(uint64_t address, uint64_t* offset);
    void look_for_peer(State& home, const Present& now, uint64_t offset, uint32_t bytes, uint64_t pc);
    void beside_copy(const Conflict& conflict, const Present& now, uint64_t offset, uint32_t bytes, uint64_t pc);
    Verdict access_global(const Present& now, uint64_t address, uint32_t bytes, uint64_t pc);
    void note_touched(Op op, uint64_t address, uint32_t bytes);
    void note_unset(const Present& now, uint64_t address, uint32_t bytes, uint64_t pc);
    void judge(const Clash& clash, const Present& now, bool shared, uint64_t address, uint32_t bytes, uint64_t pc);
    void copy_under_way(const AsyncCopy& copy, const Present& now, uint64_t address, uint32_t bytes, uint64_t pc);
    void settle();
    void await_store(uint64_t address, uint32_t bytes) const;
    template <class Report>
    void repeat_or(const FindingRecord& found, const Present& now, uint32_t other_site, const Report& report);

    FindingRecord finding(FindingKind kind, const Present& now, uint64_t address, uint32_t bytes, uint64_t pc) const;
    FindingRecord race(const Present& now, bool shared, uint64_t address, uint32_t bytes, uint64_t pc, const Cell& past) const;
    Verdict out_of_bounds(const Present& now, uint64_t address, uint32_t bytes, uint64_t pc);
    void out_of_bounds(const Request& request, uint32_t lane);

    uint32_t shared_lanes(const Request& request) const;
    void request_shared(const Request& request, uint32_t mask);
    void request_global(const Request& request, uint32_t mask);

    LaunchRecord::State& launch;
    const uint64_t shared_begin;
    const uint64_t shared_bytes;
    BlockOrder order;
    SharedShadow shared;
    AsyncChecks* checks = nullptr;
    uint32_t rank = 0;
    std::vector<Peer> peers;  // empty where the block is alone
    AsyncCopies copies;
    Counts counts;
    RecentReads recent_reads;
    std::vector<GlobalShadow*> shadow_of_site;  // the buffer an instruction was last seen in
    TouchedBuffer* last_touched = nullptr;
    Doubt doubt;
    std::atomic<uint64_t> storing{kNothing};
    std::unordered_map<uint64_t, FindingRecord> repeated;  // by kind and sites: what was reported, and how often it came again
    uint64_t blocks_run = 0;
    uint64_t block_barriers = 0;
    uint64_t warp_barriers = 0;
    uint64_t bulk_copies = 0;
    uint64_t bulk_in_flight = 0;  // most of one block
};

}  // namespace lk
