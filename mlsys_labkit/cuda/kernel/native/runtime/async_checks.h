// async_checks.h: what bulk copies and mbarriers order, and the accesses that nothing keeps apart from a copy.
//
// A clock a warp counts what the warp has published. An arrival publishes what its warp did with a phase of an mbarrier, and a
// wait for that phase makes it known to the waiter's warp. Whether a copy came too early, or an access, does not depend on when
// the simulator made the copy.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

namespace lk {

// What each warp of a cluster has published by some moment.
using Clocks = std::vector<uint32_t>;

// A thread of a cluster, and where in the code it did something.
struct Actor {
    uint32_t rank = 0;    // of its block
    uint32_t thread = 0;  // in its block
    uint64_t pc = 0;
};

// What an access or a copy comes too early for.
struct Conflict {
    enum Kind { none, unfinished, in_use, overwritten, unfenced, multiplied } kind = none;
    Actor other;            // the copy, the earlier access or the write
    uint64_t offset = 0;    // of the first byte concerned
    bool committed = true;  // a store's bulk group
    bool fresh = true;      // no copy had filled the bytes before
};

class AsyncChecks {
public:
    AsyncChecks(uint32_t blocks, uint32_t threads, uint64_t shared_bytes);

    // A cluster starts on the storage of an earlier one.
    void begin();
    void begin_block(uint32_t rank);

    // Barriers that order all warps of a block, of a cluster; and lanes of one warp.
    void block_barrier(uint32_t rank);
    void cluster_barrier();
    void warp_barrier(uint32_t rank, uint32_t warp);
    // Adds to `object` what the thread's warp did until now; makes known to the warp what `object` holds.
    void publish(const Actor& by, Clocks& object);
    void learn(const Actor& by, const Clocks& object);
    // A thread has made its writes visible to the async proxy.
    void proxy_fence(const Actor& by) { fences_[place(by)] = ++now_; }
    bool fenced_since(uint64_t when, const Actor& writer, const Actor& copier) const;
    uint64_t now() const { return now_; }
    uint32_t clock(const Actor& by) const { return time_[warp(by)]; }
    // Whether something orders what `later` does now after what `earlier` did when its warp's clock was `then`.
    bool comes_after(const Actor& later, const Actor& earlier, uint32_t then) const { return knows(warp(later), warp(earlier), then); }

    // A copy into shared memory of block `rank` that ends with a phase of the mbarrier at `barrier` there.
    Conflict start_load(const Actor& by, uint32_t rank, uint64_t offset, uint64_t bytes, uint64_t barrier, uint32_t phase);
    void wait(const Actor& by, uint64_t barrier, uint32_t phase);
    // A copy that reads shared memory of the thread's block and belongs to a bulk group of the thread. It is only looked at and
    // noted where it belongs to a phase of a barrier instead.
    Conflict start_store(const Actor& by, uint64_t offset, uint64_t bytes, uint32_t group, bool grouped);
    void wait_for_groups(const Actor& by, uint32_t first_left);
    void commit_group(const Actor& by) { groups_[place(by)]++; }

    // Reads of a product's operands by a warp of the block, each of one granule; the first that was written without a fence. A
    // wait of one warp ends the products of its warpgroup.
    Conflict start_product(const Actor& by, const std::vector<uint64_t>& offsets, uint32_t group);
    void commit_products(const Actor& by, uint32_t groups) { committed_[warp(by)] = groups; }
    void wait_for_products(const Actor& by, uint32_t first_left);
    // Whether access() takes a read for a use that a copy must not overtake.
    void counts_uses(bool counts) { counts_uses_ = counts; }

    // An access of the kernel's own to shared memory of block `rank`. filled: a copy has written there.
    Conflict access(const Actor& by, uint32_t rank, uint64_t offset, uint32_t bytes, bool writes, bool* filled);

    // A copy of this block that no thread has waited for, when the block ends: none, unfinished, or in_use for a store.
    Conflict left_over(uint32_t rank) const;

private:
    struct Wait {
        uint32_t clock = 0;  // 0: it has not waited
        uint32_t lanes = 0;
        uint64_t syncs = 0;  // of its warp by then
    };
    struct Use {
        uint32_t clock = 0;
        Actor by;
    };
    struct Region {
        Actor by;
        uint64_t barrier = 0;
        uint32_t rank = 0;
        uint32_t number = 0;    // of the phase or the group
        uint64_t granules = 0;  // that still belong to it
        std::vector<Wait> waits;
        std::vector<Use> uses;
    };
    static constexpr uint64_t kGranule = 16;
    // Operands that a product under way may still read.
    struct Product {
        Actor by;
        uint32_t group = 0;
        std::vector<uint64_t> granules;
    };
    // The first wait of a warpgroup for its groups up to one.
    struct Awaited {
        uint32_t groups = 0;
        uint32_t warp = 0;
        uint32_t clock = 0;
    };
    struct Written {
        uint64_t when = 0;
        Actor by;
    };
    struct BlockState {
        std::vector<uint32_t> loads;   // by granule: 1 + the region; 0: none
        std::vector<uint32_t> stores;
        std::vector<Written> written;
        std::vector<uint16_t> readers;  // by granule: products
        bool any = false;
    };

    uint32_t warp(const Actor& event) const { return event.rank * warps_ + event.thread / 32; }
    uint32_t place(const Actor& event) const { return event.rank * threads_ + event.thread; }
    bool knows(uint32_t warp, uint32_t other, uint32_t clock) const {
        return warp == other || known_[uint64_t{warp} * all_ + other] >= clock;
    }
    bool knows_end(const Region& region, uint32_t warp) const;
    bool sees(const Region& region, const Actor& by) const;
    void mark(Region& region, const Actor& by);
    void tick(uint32_t first, uint32_t count);
    uint32_t make_region();
    void release(std::vector<uint32_t>& places, uint64_t first, uint64_t end);
    void take(std::vector<uint32_t>& places, uint64_t first, uint64_t end, uint32_t region);
    void drop(uint32_t region);
    Conflict reader_of(uint32_t rank, uint64_t granule) const;
    BlockState& state(uint32_t rank);

    const uint32_t threads_;
    const uint32_t warps_;
    const uint32_t all_;
    const uint64_t granules_;
    std::vector<uint32_t> time_;
    std::vector<uint32_t> known_;  // [warp][other]
    std::vector<uint64_t> syncs_;
    std::vector<uint64_t> fences_;
    std::vector<uint32_t> groups_;
    uint64_t now_ = 1;
    bool counts_uses_ = true;
    std::vector<BlockState> blocks_;
    std::vector<std::unique_ptr<Region>> regions_;
    std::vector<uint32_t> free_;
    std::vector<std::vector<Product>> products_;  // by warp
    std::vector<uint32_t> committed_;             // groups of products, by warp
    std::vector<std::vector<Awaited>> awaited_;   // by the first warp of a warpgroup
    std::unordered_map<uint64_t, std::vector<uint32_t>> of_barrier_;
    std::unordered_map<uint32_t, std::vector<uint32_t>> of_thread_;  // stores that nobody has waited for
};

}  // namespace lk
