// bfloat16.h: __nv_bfloat16 and __nv_bfloat162, rounded to the nearest even after each operation, as the GPU does.
#pragma once

#include "lk/floats.h"
#include "lk/half.h"

namespace lk {

LK_INLINE unsigned short bfloat16_bits(float value) {
    const unsigned bits = __float_as_uint(value);
    if (value != value) {
        return 0x7fff;  // the GPU's one NaN
    }
    return static_cast<unsigned short>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// Double to float rounds to odd, so that the second rounding cannot go astray.
LK_INLINE unsigned short bfloat16_bits(double value) {
    float nearest = float(value);
    if (double(nearest) == value || value != value || __builtin_isinf(nearest)) {
        return bfloat16_bits(nearest);
    }
    const bool is_larger = __builtin_fabs(double(nearest)) > __builtin_fabs(value);
    return bfloat16_bits(__uint_as_float((__float_as_uint(nearest) - is_larger) | 1));
}

LK_INLINE float bfloat16_value(unsigned short upper_bits) {
    return __uint_as_float(unsigned(upper_bits) << 16);
}

}  // namespace lk

#define LK_NUMBER __nv_bfloat16
#define LK_RAW __nv_bfloat16_raw
#define LK_PAIR __nv_bfloat162
#define LK_RAW_PAIR __nv_bfloat162_raw
#define LK_OF_KIND(name) bfloat16_##name
#include "lk/number16.h"
