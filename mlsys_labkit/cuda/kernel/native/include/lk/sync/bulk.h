// bulk.h: bulk copies (TMA): one thread starts them, and the runtime makes them some time later.
#pragma once

#include <cstddef>
#include <type_traits>

#include "lk/synchronize.h"

namespace lk {

LK_INLINE void bulk_load(void* to, const void* from, size_t bytes, void* barrier) { lk_bulk_load(to, from, bytes, barrier); }

LK_INLINE void bulk_store(void* to, const void* from, size_t bytes) { lk_bulk_store(to, from, bytes, nullptr); }

enum class Reduction { add, min, max, band, bor, bxor };

// Each element at `to` becomes what the operation makes of it and of the one at `from`.
template <class Element, Reduction reduction>
LK_UNRECORDED inline void reduce_elements(char* to, const char* from, unsigned long bytes) {
    Element* result = reinterpret_cast<Element*>(to);
    const Element* other = reinterpret_cast<const Element*>(from);
    for (unsigned long i = 0; i < bytes / sizeof(Element); i++) {
        if constexpr (reduction == Reduction::add) result[i] = Element(result[i] + other[i]);
        if constexpr (reduction == Reduction::min) result[i] = other[i] < result[i] ? other[i] : result[i];
        if constexpr (reduction == Reduction::max) result[i] = result[i] < other[i] ? other[i] : result[i];
        if constexpr (std::is_integral_v<Element>) {
            if constexpr (reduction == Reduction::band) result[i] = result[i] & other[i];
            if constexpr (reduction == Reduction::bor) result[i] = result[i] | other[i];
            if constexpr (reduction == Reduction::bxor) result[i] = result[i] ^ other[i];
        }
    }
}

template <class Element, Reduction reduction>
LK_INLINE void bulk_reduce(void* to, const void* from, size_t bytes) {
    lk_bulk_store(to, from, bytes, reduce_elements<Element, reduction>);
}

}  // namespace lk
