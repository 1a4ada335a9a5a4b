// bfloat16.h: __nv_bfloat16 and __nv_bfloat162, rounded to the nearest even after each operation, as the GPU does.
#pragma once

#include "lk/half.h"

struct __nv_bfloat16_raw {
    unsigned short x;
};

struct alignas(4) __nv_bfloat162_raw {
    unsigned short x, y;
};

namespace lk {

LK_INLINE unsigned short bfloat16_bits(float value) {
    unsigned int bits;
    __builtin_memcpy(&bits, &value, sizeof bits);
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
    unsigned int bits;
    __builtin_memcpy(&bits, &nearest, sizeof bits);
    if (__builtin_fabs(double(nearest)) > __builtin_fabs(value)) {
        --bits;
    }
    bits |= 1;
    float odd;
    __builtin_memcpy(&odd, &bits, sizeof odd);
    return bfloat16_bits(odd);
}

LK_INLINE float bfloat16_value(unsigned short upper_bits) {
    const unsigned int bits = static_cast<unsigned int>(upper_bits) << 16;
    float value;
    __builtin_memcpy(&value, &bits, sizeof value);
    return value;
}

}  // namespace lk

#define LK_NUMBER __nv_bfloat16
#define LK_PAIR __nv_bfloat162
#define LK_RAW __nv_bfloat16_raw
#define LK_RAW_PAIR __nv_bfloat162_raw
#define LK_BITS bfloat16_bits
#define LK_VALUE bfloat16_value
#define LK_FUNCTIONS bfloat16_functions
#include "lk/type16.h"
#include "lk/number16.h"
#undef LK_NUMBER
#undef LK_PAIR
#undef LK_RAW
#undef LK_RAW_PAIR
#undef LK_BITS
#undef LK_VALUE
#undef LK_FUNCTIONS
