// copy.h: an asynchronous copy that the threads of a group share: each takes every size()-th piece, as wide as the addresses
// allow. The simulator copies when it is started, and tells check which wait ends it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lk/builtins.h"
#include "lk/vectors.h"

namespace lk {

// What ends a copy: a wait for the batch of its thread that is open now, or the end of a phase of a barrier.
struct CopyEnd {
    const void* barrier = nullptr;
    unsigned phase = 0;
};

LK_INLINE void copy_started(const void* to, size_t bytes, CopyEnd end = {}) {
    if constexpr (recording) {
        lk_copy_started(to, bytes, end.barrier, end.phase);
    }
}

LK_INLINE void copies_committed() {
    if constexpr (recording) {
        lk_copies_committed();
    }
}

LK_INLINE void copies_awaited(unsigned batches_left) {
    if constexpr (recording) {
        lk_copies_awaited(batches_left);
    }
}

template <class Piece>
LK_INLINE auto copy_pieces(unsigned rank, unsigned threads, void* to, const void* from, size_t bytes, CopyEnd end) {
    Piece* pieces = static_cast<Piece*>(to);
    const Piece* source = static_cast<const Piece*>(from);
    for (size_t i = rank; i < bytes / sizeof(Piece); i += threads) {
        pieces[i] = source[i];
        copy_started(&pieces[i], sizeof(Piece), end);
    }
}

LK_INLINE void copy_by_group(unsigned rank, unsigned threads, void* to, const void* from, size_t bytes, CopyEnd end = {}) {
    const uintptr_t together = reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from) | bytes;
    if (together % 16 == 0) {
        copy_pieces<uint4>(rank, threads, to, from, bytes, end);
    } else if (together % 8 == 0) {
        copy_pieces<uint2>(rank, threads, to, from, bytes, end);
    } else if (together % 4 == 0) {
        copy_pieces<unsigned>(rank, threads, to, from, bytes, end);
    } else {
        copy_pieces<char>(rank, threads, to, from, bytes, end);
    }
}

}  // namespace lk
