// cooperative_groups/reduce.h: the values of a group folded into one, which every thread of it gets.
#pragma once

#include <cooperative_groups.h>

#include "lk/groups/operations.h"
#include <cooperative_groups/scan.h>

namespace cooperative_groups {

// In the order of CUDA's own headers, so that sums of floats round alike: halves of a tile, then quarters, ...
template <unsigned TileThreads, class Parent, class Value, class Operation>
LK_INLINE Value reduce(const thread_block_tile<TileThreads, Parent>& group, Value value, Operation operation) {
#pragma GCC unroll 5
    for (unsigned distance = TileThreads / 2; distance > 0; distance /= 2) {
        value = operation(value, group.shfl_xor(value, distance));
    }
    return value;
}

template <class Value, class Operation>
LK_INLINE Value reduce(const coalesced_group& group, Value value, Operation operation) {
    if (group.size() == 32) {
        return reduce(thread_block_tile<32>::lk_made(0, 1), value, operation);
    }
    return group.shfl(inclusive_scan(group, value, operation), group.size() - 1);
}

}  // namespace cooperative_groups
