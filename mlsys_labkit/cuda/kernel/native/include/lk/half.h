// half.h: __half and __half2, rounded to the nearest even after each operation, as the GPU does.
#pragma once

#include <cmath>
#include <cstring>

#include "lk/atomics.h"
#include "lk/vectors.h"
#include "lk/warp.h"

namespace lk {

// Read, written and converted only. On aarch64, C++ has _Float16 from g++ 13 on, and always its older name.
#if defined(__aarch64__)
using Float16 = __fp16;
#else
using Float16 = _Float16;
#endif

// Integers pass through double, which holds all that half can tell apart.
template <class Wider>
LK_INLINE auto half_bits(Wider wider) {
    const Float16 value = Float16(wider);
    unsigned short bits;
    __builtin_memcpy(&bits, &value, sizeof bits);
    return wider != wider ? (unsigned short)0x7fff : bits;  // the GPU's one NaN
}

LK_INLINE float half_value(unsigned short bits) {
    Float16 value;
    __builtin_memcpy(&value, &bits, sizeof value);
    return float(value);
}

}  // namespace lk

#define LK_NUMBER __half
#define LK_RAW __half_raw
#define LK_PAIR __half2
#define LK_RAW_PAIR __half2_raw
#define LK_OF_KIND(name) half_##name
#include "lk/number16.h"
