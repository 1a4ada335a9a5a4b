// tile.h: thread_block_tile: a power of two of neighbouring lanes, known when the kernel is compiled.
#pragma once

#include "lk/groups/coalesced.h"

namespace cooperative_groups {

template <unsigned TileThreads, class Parent = void>
class thread_block_tile : public thread_group {
    static_assert((TileThreads & (TileThreads - 1)) == 0 && TileThreads > 0, "a tile has a power of two of threads");
    static_assert(TileThreads <= 32, "tiles of more than one warp are not simulated; a GPU is needed");

public:
    // A tile of a block or of a larger tile can stand for one of any parent.
    template <class Other>
    LK_INLINE thread_block_tile(const thread_block_tile<TileThreads, Other>& from)
        : thread_block_tile(from.meta_group_rank(), from.meta_group_size()) {}

    static LK_INLINE constexpr unsigned size() { return TileThreads; }
    static LK_INLINE constexpr unsigned num_threads() { return TileThreads; }
    static LK_INLINE unsigned thread_rank() { return lk_lane() % TileThreads; }
    LK_INLINE unsigned meta_group_rank() const { return lk_meta_rank; }
    LK_INLINE unsigned meta_group_size() const { return lk_meta_size; }
    static LK_INLINE void sync() { lk_warp_barrier(lk_lanes()); }

    template <class Value>
    LK_INLINE Value shfl(Value value, int rank) const {
        return lk::shuffle(lk_lanes(), value, lk_shuffle_index, rank, TileThreads);
    }
    template <class Value>
    LK_INLINE Value shfl_up(Value value, unsigned delta) const {
        return lk::shuffle(lk_lanes(), value, lk_shuffle_up, int(delta), TileThreads);
    }
    template <class Value>
    LK_INLINE Value shfl_down(Value value, unsigned delta) const {
        return lk::shuffle(lk_lanes(), value, lk_shuffle_down, int(delta), TileThreads);
    }
    template <class Value>
    LK_INLINE Value shfl_xor(Value value, unsigned lane_mask) const {
        return lk::shuffle(lk_lanes(), value, lk_shuffle_xor, int(lane_mask), TileThreads);
    }

    LK_INLINE int any(int predicate) const { return lk_ballot(lk_lanes(), predicate != 0) != 0; }
    LK_INLINE int all(int predicate) const { return lk_ballot(lk_lanes(), predicate == 0) == 0; }
    LK_INLINE unsigned ballot(int predicate) const { return lk_ballot(lk_lanes(), predicate != 0) >> lk_first(); }
    template <class Value>
    LK_INLINE unsigned match_any(Value value) const {
        return __match_any_sync(lk_lanes(), value) >> lk_first();
    }
    template <class Value>
    LK_INLINE unsigned match_all(Value value, int& all_equal) const {
        return __match_all_sync(lk_lanes(), value, &all_equal) >> lk_first();
    }

    static LK_INLINE unsigned lk_first() { return lk_lane() & ~(TileThreads - 1); }
    static LK_INLINE unsigned lk_lanes() { return (~0u >> (32 - TileThreads)) << lk_first(); }
    static LK_INLINE thread_block_tile lk_made(unsigned meta_rank, unsigned meta_size) {
        return thread_block_tile(meta_rank, meta_size);
    }

private:
    template <unsigned, class>
    friend class thread_block_tile;

    thread_block_tile(unsigned meta_rank, unsigned meta_size)
        : thread_group(lk::GroupKind::lanes, lk_lanes()), lk_meta_rank(meta_rank), lk_meta_size(meta_size) {}

    unsigned lk_meta_rank;
    unsigned lk_meta_size;
};

template <unsigned TileThreads>
LK_INLINE thread_block_tile<TileThreads, thread_block> tiled_partition(const thread_block& block) {
    return thread_block_tile<TileThreads, thread_block>::lk_made(block.thread_rank() / TileThreads,
                                                                 (block.size() + TileThreads - 1) / TileThreads);
}

template <unsigned TileThreads, unsigned ParentThreads, class GrandParent>
LK_INLINE auto tiled_partition(const thread_block_tile<ParentThreads, GrandParent>& parent)
    -> thread_block_tile<TileThreads, thread_block_tile<ParentThreads, GrandParent>> {
    static_assert(TileThreads < ParentThreads, "a tile is smaller than what it is a part of");
    return thread_block_tile<TileThreads, thread_block_tile<ParentThreads, GrandParent>>::lk_made(
        parent.thread_rank() / TileThreads, ParentThreads / TileThreads);
}

LK_INLINE thread_block_tile<1> this_thread() { return thread_block_tile<1>::lk_made(0, 1); }

}  // namespace cooperative_groups
