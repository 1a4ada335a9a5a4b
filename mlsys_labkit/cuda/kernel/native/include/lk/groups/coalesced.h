// coalesced.h: any lanes of a warp as a group, ranked from the lowest lane.
#pragma once

#include "lk/groups/group.h"
#include "lk/warp.h"

namespace lk {

// The bits of `lanes` that stand in mask, side by side.
LK_OPAQUE inline unsigned packed(unsigned mask, unsigned lanes) {
    unsigned result = 0;
    for (unsigned rank = 0; mask; ++rank, mask &= mask - 1) {
        result |= (lanes >> __builtin_ctz(mask) & 1) << rank;
    }
    return result;
}

// The lane of this rank; for a rank that is not there a lane that is not there, so that reading from it is found.
LK_OPAQUE inline int lane_of_rank(unsigned mask, unsigned rank) {
    if (mask == 0xffffffffu) {
        return int(rank % 32);
    }
    unsigned left = mask;
    for (; rank && left; --rank) {
        left &= left - 1;
    }
    return __builtin_ctz(left ? left : ~mask);
}

// The lanes whose rank in mask, divided by tile_threads, is the caller's.
LK_OPAQUE inline unsigned tile_of_ranks(unsigned mask, unsigned tile_threads) {
    const unsigned tile = unsigned(__builtin_popcount(lanes_below(mask))) / tile_threads;
    unsigned result = 0;
    for (unsigned rank = 0; mask; ++rank, mask &= mask - 1) {
        if (rank / tile_threads == tile) {
            result |= mask & -mask;
        }
    }
    return result;
}

}  // namespace lk

namespace cooperative_groups {

class coalesced_group : public thread_group {
public:
    LK_INLINE unsigned size() const { return __builtin_popcount(lk_mask); }
    LK_INLINE unsigned num_threads() const { return size(); }
    LK_INLINE unsigned thread_rank() const { return __builtin_popcount(lk::lanes_below(lk_mask)); }
    LK_INLINE unsigned meta_group_rank() const { return lk_meta_rank; }
    LK_INLINE unsigned meta_group_size() const { return lk_meta_size; }
    LK_INLINE void sync() const { lk_warp_barrier(lk_mask); }

    template <class Value>
    LK_INLINE Value shfl(Value value, unsigned rank) const {
        return lk::shuffle(lk_mask, value, lk_shuffle_index, lk::lane_of_rank(lk_mask, rank), 32);
    }

    // Beyond either end a thread reads its own value.
    template <class Value>
    LK_INLINE Value shfl_up(Value value, unsigned delta) const {
        return shfl(value, delta > thread_rank() ? thread_rank() : thread_rank() - delta);
    }
    template <class Value>
    LK_INLINE Value shfl_down(Value value, unsigned delta) const {
        return shfl(value, delta >= size() - thread_rank() ? thread_rank() : thread_rank() + delta);
    }

    LK_INLINE int any(int predicate) const { return lk_ballot(lk_mask, predicate != 0) != 0; }
    LK_INLINE int all(int predicate) const { return lk_ballot(lk_mask, predicate == 0) == 0; }
    LK_INLINE unsigned ballot(int predicate) const {
        return lk::packed(lk_mask, lk_ballot(lk_mask, predicate != 0));
    }
    template <class Value>
    LK_INLINE unsigned match_any(Value value) const {
        return lk::packed(lk_mask, __match_any_sync(lk_mask, value));
    }
    template <class Value>
    LK_INLINE unsigned match_all(Value value, int& all_equal) const {
        return lk::packed(lk_mask, __match_all_sync(lk_mask, value, &all_equal));
    }

    LK_INLINE unsigned lk_lanes() const { return lk_mask; }
    static LK_INLINE coalesced_group lk_made(unsigned mask, unsigned meta_rank, unsigned meta_size) {
        return coalesced_group(mask, meta_rank, meta_size);
    }

private:
    coalesced_group(unsigned mask, unsigned meta_rank, unsigned meta_size)
        : thread_group(lk::GroupKind::lanes, mask), lk_meta_rank(meta_rank), lk_meta_size(meta_size) {}

    unsigned lk_meta_rank;
    unsigned lk_meta_size;
};

LK_INLINE coalesced_group coalesced_threads() { return coalesced_group::lk_made(lk_active_mask(), 0, 1); }

LK_INLINE coalesced_group tiled_partition(const coalesced_group& parent, unsigned tile_threads) {
    return coalesced_group::lk_made(lk::tile_of_ranks(parent.lk_lanes(), tile_threads), parent.thread_rank() / tile_threads,
                                    (parent.size() + tile_threads - 1) / tile_threads);
}

// Tiles of a block whose size is known when it runs. What is no block is tiled by the ranks of its lanes.
LK_INLINE thread_group tiled_partition(const thread_group& parent, unsigned tile_threads) {
    if (parent.lk_kind != lk::GroupKind::block) {
        return thread_group(lk::GroupKind::lanes, lk::tile_of_ranks(parent.lk_mask, tile_threads));
    }
    const unsigned tile = (tile_threads >= 32 ? ~0u : (1u << tile_threads) - 1) << (lk_lane() & ~(tile_threads - 1));
    return thread_group(lk::GroupKind::lanes, tile);
}

// Two groups: where the predicate does not hold, and where it does; or one, where all agree.
template <class Group>
LK_INLINE coalesced_group binary_partition(const Group& group, bool predicate) {
    const unsigned lanes = group.lk_lanes();
    const unsigned yes = lk_ballot(lanes, predicate);
    if (yes == 0 || (lanes & ~yes) == 0) {
        return coalesced_group::lk_made(predicate ? yes : lanes, 0, 1);
    }
    return coalesced_group::lk_made(predicate ? yes : lanes & ~yes, predicate, 2);
}

// One group for each label, ranked by its lowest lane.
template <class Group, class Label>
LK_INLINE coalesced_group labeled_partition(const Group& group, Label label) {
    if constexpr (std::is_same<Label, bool>::value) {
        return binary_partition(group, label);
    }
    static_assert(std::is_integral<Label>::value || std::is_pointer<Label>::value, "a label is an integer or a pointer");
    const long long word = (long long)label;
    const unsigned same = lk_match(group.lk_lanes(), &word, sizeof word);
    const unsigned firsts = lk_ballot(group.lk_lanes(), lk_lane() == unsigned(__builtin_ctz(same)));
    const unsigned before = firsts & ((same & -same) - 1);
    return coalesced_group::lk_made(same, __builtin_popcount(before), __builtin_popcount(firsts));
}

}  // namespace cooperative_groups
