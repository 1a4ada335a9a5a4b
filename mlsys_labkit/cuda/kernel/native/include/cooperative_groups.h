// cooperative_groups.h: groups of threads as objects: blocks, tiles, coalesced lanes, the grid.
#pragma once

#include <type_traits>
#include <utility>

#include "lk/groups/cluster.h"
#include "lk/groups/tile.h"

namespace cooperative_groups {

template <class Group>
LK_INLINE void sync(const Group& group, int line = __builtin_LINE()) {
    if constexpr (std::is_same<Group, thread_block>::value || std::is_same<Group, thread_group>::value) {
        group.sync(line);
    } else {
        group.sync();
    }
}

template <class Group>
LK_INLINE auto thread_rank(const Group& group) {
    return group.thread_rank();
}

template <class Group>
LK_INLINE auto group_size(const Group& group) {
    return group.num_threads();
}

// One thread of the group calls the function; here the first.
template <class Group, class Function, class... Arguments>
LK_INLINE void invoke_one(const Group& group, Function&& function, Arguments&&... arguments) {
    if (group.thread_rank() == 0) {
        std::forward<Function>(function)(std::forward<Arguments>(arguments)...);
    }
}

// And all get what it returns.
template <class Group, class Function, class... Arguments>
LK_INLINE auto invoke_one_broadcast(const Group& group, Function&& function, Arguments&&... arguments) {
    decltype(function(arguments...)) result{};
    if (group.thread_rank() == 0) {
        result = std::forward<Function>(function)(std::forward<Arguments>(arguments)...);
    }
    return group.shfl(result, 0);
}

}  // namespace cooperative_groups
