// cooperative_groups/scan.h: running totals over a group, by rank.
#pragma once

#include <cooperative_groups.h>

#include "lk/groups/operations.h"

namespace cooperative_groups {

template <class Group, class Value, class Operation>
LK_INLINE Value inclusive_scan(const Group& group, Value value, Operation operation) {
    const unsigned rank = group.thread_rank();
    for (unsigned distance = 1; distance < group.size(); distance *= 2) {
        const Value other = group.shfl_up(value, distance);
        if (rank >= distance) {
            value = operation(other, value);
        }
    }
    return value;
}

template <class Group, class Value>
LK_INLINE Value inclusive_scan(const Group& group, Value value) {
    return inclusive_scan(group, value, plus<Value>());
}

// The first thread gets a value-initialised one.
template <class Group, class Value, class Operation>
LK_INLINE Value exclusive_scan(const Group& group, Value value, Operation operation) {
    const Value total = group.shfl_up(inclusive_scan(group, value, operation), 1);
    return group.thread_rank() == 0 ? Value{} : total;
}

template <class Group, class Value>
LK_INLINE Value exclusive_scan(const Group& group, Value value) {
    return exclusive_scan(group, value, plus<Value>());
}

}  // namespace cooperative_groups
