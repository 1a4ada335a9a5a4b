// cuda_pipeline_primitives.h: a thread's own asynchronous copies. Here each is done when it is started;
// that nobody looks before the wait is for check to say.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lk/groups/copy.h"

// 4, 8 or 16 bytes, of which the last zero_bytes are not read but set to zero.
LK_INLINE void __pipeline_memcpy_async(void* to, const void* from, size_t bytes, size_t zero_bytes = 0) {
    if (zero_bytes == 0 && bytes == 16) {
        *static_cast<uint4*>(to) = *static_cast<const uint4*>(from);
    } else if (zero_bytes == 0 && bytes == 8) {
        *static_cast<uint2*>(to) = *static_cast<const uint2*>(from);
    } else if (zero_bytes == 0 && bytes == 4) {
        *static_cast<unsigned*>(to) = *static_cast<const unsigned*>(from);
    } else {
        char piece[16] = {};
        lk_memcpy(piece, from, bytes - zero_bytes);
        lk_memcpy(to, piece, bytes);
    }
    lk::copy_started(to, bytes);
}

LK_INLINE void __pipeline_commit() { lk::copies_committed(); }

LK_INLINE void __pipeline_wait_prior(size_t batches_left) { lk::copies_awaited(unsigned(batches_left)); }
