// cooperative_groups/memcpy_async.h: copies that a group starts and waits for. The simulator copies when they are started; check
// reports reads before the wait.
#pragma once

#include <cooperative_groups.h>

#include "lk/groups/aligned_size.h"
#include "lk/groups/copy.h"

namespace cooperative_groups {

template <class Group>
LK_INLINE void memcpy_async(const Group& group, void* to, const void* from, size_t bytes) {
    lk::copy_by_group(group.thread_rank(), group.size(), to, from, bytes);
    lk::copies_committed();
}

// The sizes of both sides, in elements: the smaller one counts.
template <class Group, class To, class From, class ToLayout, class FromLayout>
LK_INLINE void memcpy_async(const Group& group, To* to, const ToLayout& to_count, const From* from, const FromLayout& from_count) {
    const size_t to_bytes = to_count * sizeof(To);
    const size_t from_bytes = from_count * sizeof(From);
    memcpy_async(group, to, from, to_bytes < from_bytes ? to_bytes : from_bytes);
}

template <class Group>
LK_INLINE void wait(const Group& group, int line = __builtin_LINE()) {
    lk::copies_awaited(0);
    cooperative_groups::sync(group, line);
}

// All but the last Stages copies are done.
template <unsigned Stages, class Group>
LK_INLINE void wait_prior(const Group& group, int line = __builtin_LINE()) {
    lk::copies_awaited(Stages);
    cooperative_groups::sync(group, line);
}

}  // namespace cooperative_groups
