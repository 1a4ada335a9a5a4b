// mbarrier.h: barriers of Hopper's kind: arrivals, and bytes that copies bring. The runtime keeps their state.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lk/synchronize.h"

namespace lk {

// For the race check an arrival is an atomic on the barrier, and releases what its thread did before. The released object is not
// the barrier's own address: the atomic of the next arrival would acquire it, and check would miss threads that did not wait for
// the initialisation.
LK_INLINE void touch_barrier(void* at) {
#ifdef __SANITIZE_THREAD__
    lk_atomic(at, 8);
#endif
}

LK_INLINE void mbarrier_init(void* at, unsigned arrivals) {
#ifdef __SANITIZE_THREAD__
    lk_write(at, 8);
#endif
    lk_mbarrier_init(at, arrivals);
}

LK_INLINE unsigned mbarrier_arrive(void* at, unsigned arrivals = 1, unsigned long long bytes = 0, bool drops = false) {
    touch_barrier(at);
    lk_release(static_cast<char*>(at) + 1);
    return lk_mbarrier_arrive(at, arrivals, bytes, drops);
}

LK_INLINE bool mbarrier_wait(const void* at, unsigned phase, bool may_give_up) {
    const bool over = lk_mbarrier_wait(at, phase, may_give_up) != 0;
    if (over) lk_acquire(static_cast<const char*>(at) + 1);
    return over;
}

LK_INLINE bool mbarrier_wait_parity(const void* at, unsigned parity, bool may_give_up) {
    const bool over = lk_mbarrier_wait_parity(at, parity, may_give_up) != 0;
    if (over) lk_acquire(static_cast<const char*>(at) + 1);
    return over;
}

}  // namespace lk
