// order.h: which accesses of a launch are ordered by barriers, fences and flags, and which are not.
//
// Time is cut into segments: a block begins a new one at its start, at every block barrier and at every fence. Segments are
// numbered through the life of the process, so that what an earlier launch or block left in a shadow is recognised by its
// number and never has to be cleared.
//
// Ordered are
//   * accesses of one thread;
//   * across a block barrier, those of one block; across a grid barrier, all;
//   * across warp barriers, those of lanes that a chain of barriers connects (a vector clock a warp);
//   * across objects (atomics and volatile flags in global memory, cuda::barrier): what a thread did before a fence and then an
//     atomic on the object, and what its warp did by then, and what its block did before its last block barrier, before
//     what any warp does that has since read the object with an atomic or a volatile load.
// The last rule does not ask which value was read, so that no correct handshake is reported; a handshake that reads the flag
// too early is not found.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace lk {

constexpr uint32_t kWarpLanes = 32;

struct Participant {
    uint64_t block;
    uint32_t warp;
};

// Of a launch: who released and acquired which object.
class Objects {
public:
    // What `by` did in segments before `mark`, and what its block did before `floor`, is published with object.
    void release(uint64_t object, Participant by, uint32_t mark, uint32_t floor);
    // kWholeBlock as the warp: what one warp acquired, all know after a block barrier.
    void acquire(uint64_t object, Participant by);
    void share_with_block(uint64_t block, uint32_t warps);
    // Whether an access of `past` in `segment` is known to `now`.
    bool orders(Participant past, uint32_t segment, Participant now);
    bool knows_anything(Participant who);
    // False until the first fence: then nothing is looked up, and atomics cost nothing.
    bool in_use() const { return in_use_.load(std::memory_order_relaxed); }
    void use() { in_use_.store(true, std::memory_order_relaxed); }

    static constexpr uint32_t kWholeBlock = ~uint32_t{0};

private:
    struct Release {
        uint32_t floor = 0;
        std::unordered_map<uint32_t, uint32_t> marks;  // by warp
    };
    using Releases = std::unordered_map<uint64_t, Release>;  // by block
    static uint64_t key(Participant who) { return who.block << 6 | (who.warp & 63); }
    const std::vector<uint64_t>* acquired(Participant who) const;

    std::atomic<bool> in_use_{false};
    std::mutex mutex_;
    std::unordered_map<uint64_t, Releases> releases_;                // by object
    std::unordered_map<uint64_t, std::vector<uint64_t>> acquired_;  // objects, by participant
};

// The segments of all launches, and which block each belongs to.
class Segments {
public:
    static Segments& instance();
    // At the start of a launch, when no block runs. True when numbering started again, and every shadow must be cleared.
    bool begin_launch();
    uint32_t allocate(uint64_t block);
    // The number the next segment will have.
    uint32_t next() const { return next_.load(std::memory_order_relaxed); }
    uint64_t block_of(uint32_t segment) const;
    // Segments below are of earlier launches, or lie before a grid barrier.
    uint32_t floor() const { return floor_.load(std::memory_order_relaxed); }
    void raise_floor() { floor_.store(next(), std::memory_order_relaxed); }

private:
    Segments();
    static constexpr uint32_t kMostOfLaunch = uint32_t{1} << 28;
    uint32_t base_ = 1;  // of the launch; 0 is no segment
    std::atomic<uint32_t> next_{1};
    std::atomic<uint32_t> floor_{1};
    uint32_t* blocks_;  // [kMostOfLaunch], reserved; only what is used takes memory
};

// Of a warp: how many barriers of each lane each lane knows of, since the last block barrier.
class WarpClock {
public:
    static constexpr uint32_t kMost = 127;
    uint32_t of(uint32_t lane) const { return known_[lane][lane]; }
    // Whether what `past` did at its time `clock` is ordered before what `now` does.
    bool orders(uint32_t past, uint32_t clock, uint32_t now) const { return known_[now][past] > clock; }
    // The same for a group of lanes of which at least two, unknown which, did something no later than `clock`.
    bool orders_group(uint32_t first_lane, uint32_t lanes, uint32_t recorded, uint32_t clock, uint32_t now) const;
    // False when the clock is full and must be reset.
    bool barrier(uint32_t mask);
    void reset();

private:
    bool moved_ = false;
    uint8_t known_[kWarpLanes][kWarpLanes] = {};
};

// Of a block while it runs.
class BlockOrder {
public:
    BlockOrder(Objects& objects, uint32_t threads);

    void begin_block(uint64_t block);
    void block_barrier();
    void cluster_barrier();  // after that of the block
    void warp_barrier(uint32_t warp, uint32_t mask);
    void fence(uint32_t thread);
    // An atomic or volatile store after a fence publishes; an atomic or volatile load reads what was published.
    void atomic(uint32_t thread, uint64_t object, bool writes, bool reads);
    void release(uint32_t thread, uint64_t object);
    void acquire(uint32_t thread, uint64_t object);
    // A read is noted before it is made. The first fence of the launch may come in between, and the read see what follows it.
    void acquire_early_reads();

    uint64_t block() const { return block_; }
    // Of what happens now.
    uint32_t segment() {
        if (segment_ == 0) segment_ = segments_.allocate(block_);
        return segment_;
    }
    uint32_t floor() const { return floor_; }  // segments of this block below are ordered before now
    uint32_t first() const { return first_; }  // segments below are not of this block
    // Of a launch with clusters: what blocks of this one did in segments below is ordered before now.
    uint32_t cluster_floor() const { return cluster_floor_; }
    bool clusters_met() const { return cluster_floor_ != 0; }
    bool same_cluster(uint64_t block) const { return std::find(cluster_.begin(), cluster_.end(), block) != cluster_.end(); }
    void join(std::vector<uint64_t> blocks_of_cluster) { cluster_ = std::move(blocks_of_cluster); }
    const WarpClock& clock(uint32_t warp) const { return warps_[warp].clock; }
    uint32_t warp_floor(uint32_t warp) const { return warps_[warp].floor; }
    Objects& objects() const { return objects_; }
    const Segments& segments() const { return segments_; }

private:
    struct Warp {
        WarpClock clock;
        uint32_t floor = 0;  // what the warp did in segments below is ordered for all its lanes
    };
    struct Fence {
        uint32_t mark = 0;
        uint32_t floor = 0;
    };
    void new_segment() { segment_ = 0; }

    Objects& objects_;
    Segments& segments_;
    uint64_t block_ = 0;
    uint32_t segment_ = 0;  // 0: made when it is asked for
    uint32_t floor_ = 1;
    uint32_t first_ = 1;
    uint32_t cluster_floor_ = 0;  // 0: no barrier of the cluster yet
    std::vector<uint64_t> cluster_;
    bool acquired_ = false;
    std::vector<Warp> warps_;
    std::vector<Fence> fences_;  // the last one of each thread
    bool any_early_read_ = false;
    std::vector<uint64_t> early_reads_;  // the last object that each thread read before the launch's first fence; 0: none
};

}  // namespace lk
