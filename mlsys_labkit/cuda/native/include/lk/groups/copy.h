// copy.h: a copy that the threads of a group share: each takes every size()-th piece, as wide as the addresses allow.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lk/vectors.h"

namespace lk {

template <class Piece>
LK_INLINE void copy_pieces(unsigned rank, unsigned threads, void* to, const void* from, size_t bytes) {
    Piece* pieces = static_cast<Piece*>(to);
    const Piece* source = static_cast<const Piece*>(from);
    for (size_t i = rank; i < bytes / sizeof(Piece); i += threads) {
        pieces[i] = source[i];
    }
}

LK_INLINE void copy_by_group(unsigned rank, unsigned threads, void* to, const void* from, size_t bytes) {
    const uintptr_t together = reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from) | bytes;
    if (together % 16 == 0) {
        copy_pieces<uint4>(rank, threads, to, from, bytes);
    } else if (together % 8 == 0) {
        copy_pieces<uint2>(rank, threads, to, from, bytes);
    } else if (together % 4 == 0) {
        copy_pieces<unsigned>(rank, threads, to, from, bytes);
    } else {
        copy_pieces<char>(rank, threads, to, from, bytes);
    }
}

}  // namespace lk
