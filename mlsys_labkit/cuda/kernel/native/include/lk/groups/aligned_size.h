// aligned_size.h: cuda::aligned_size_t: a number of bytes, and a promise about the addresses that go with it.
#pragma once

#include <cstddef>

#include "lk/qualifiers.h"

namespace cuda {

template <size_t Alignment>
struct aligned_size_t {
    static constexpr size_t align = Alignment;
    size_t value;

    LK_INLINE explicit constexpr aligned_size_t(size_t bytes) : value(bytes) {}
    LK_INLINE constexpr operator size_t() const { return value; }
};

}  // namespace cuda
