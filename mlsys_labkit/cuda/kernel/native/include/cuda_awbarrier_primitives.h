// cuda_awbarrier_primitives.h: an mbarrier by functions of C.
#pragma once

#include "lk/sync/mbarrier.h"

typedef uint64_t __mbarrier_t;
typedef uint64_t __mbarrier_token_t;

LK_INLINE uint32_t __mbarrier_maximum_count() { return (1 << 20) - 1; }
LK_INLINE void __mbarrier_init(__mbarrier_t* at, uint32_t arrivals) { lk::mbarrier_init(at, arrivals); }
LK_INLINE void __mbarrier_inval(__mbarrier_t* at) { lk_mbarrier_invalidate(at); }
LK_INLINE __mbarrier_token_t __mbarrier_arrive(__mbarrier_t* at) { return lk::mbarrier_arrive(at); }
LK_INLINE __mbarrier_token_t __mbarrier_arrive_and_drop(__mbarrier_t* at) { return lk::mbarrier_arrive(at, 1, 0, true); }
LK_INLINE bool __mbarrier_test_wait(__mbarrier_t* at, __mbarrier_token_t token) { return lk::mbarrier_wait(at, unsigned(token), true); }
LK_INLINE bool __mbarrier_test_wait_parity(__mbarrier_t* at, bool parity) { return lk::mbarrier_wait_parity(at, parity, true); }
LK_INLINE bool __mbarrier_try_wait(__mbarrier_t* at, __mbarrier_token_t token, uint32_t) {
    return lk::mbarrier_wait(at, unsigned(token), true);
}
LK_INLINE bool __mbarrier_try_wait_parity(__mbarrier_t* at, bool parity, uint32_t) {
    return lk::mbarrier_wait_parity(at, parity, true);
}
