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

}  // namespace lk

struct __nv_bfloat16 {
    unsigned short lk_bits;

    __nv_bfloat16() = default;
    constexpr __nv_bfloat16(__nv_bfloat16_raw raw) : lk_bits(raw.x) {}
    // clang-format off
    __nv_bfloat16(float value) : lk_bits(lk::bfloat16_bits(value)) {}
    __nv_bfloat16(double value) : lk_bits(lk::bfloat16_bits(value)) {}
    __nv_bfloat16(short value) : __nv_bfloat16(double(value)) {}
    __nv_bfloat16(unsigned short value) : __nv_bfloat16(double(value)) {}
    __nv_bfloat16(int value) : __nv_bfloat16(double(value)) {}
    __nv_bfloat16(unsigned int value) : __nv_bfloat16(double(value)) {}
    __nv_bfloat16(long value) : __nv_bfloat16(double(value)) {}
    __nv_bfloat16(unsigned long value) : __nv_bfloat16(double(value)) {}
    __nv_bfloat16(long long value) : __nv_bfloat16(double(value)) {}
    __nv_bfloat16(unsigned long long value) : __nv_bfloat16(double(value)) {}

    operator float() const {
        unsigned int bits = static_cast<unsigned int>(lk_bits) << 16;
        float value;
        __builtin_memcpy(&value, &bits, sizeof value);
        return value;
    }
    operator __nv_bfloat16_raw() const { return {lk_bits}; }
    operator bool() const { return (lk_bits & 0x7fff) != 0; }
    operator char() const { return char(float(*this)); }
    operator signed char() const { return static_cast<signed char>(float(*this)); }
    operator unsigned char() const { return static_cast<unsigned char>(float(*this)); }
    operator short() const { return short(float(*this)); }
    operator unsigned short() const { return static_cast<unsigned short>(float(*this)); }
    operator int() const { return int(float(*this)); }
    operator unsigned int() const { return unsigned(float(*this)); }
    operator long() const { return long(float(*this)); }
    operator unsigned long() const { return static_cast<unsigned long>(float(*this)); }
    operator long long() const { return static_cast<long long>(float(*this)); }
    operator unsigned long long() const { return static_cast<unsigned long long>(float(*this)); }
    // clang-format on

    template <class Number, class = typename std::enable_if<std::is_arithmetic<Number>::value>::type>
    __nv_bfloat16& operator=(Number value) {
        return *this = __nv_bfloat16(value);
    }
};

struct alignas(4) __nv_bfloat162 {
    __nv_bfloat16 x, y;

    __nv_bfloat162() = default;
    __nv_bfloat162(const __nv_bfloat16& low, const __nv_bfloat16& high) : x(low), y(high) {}
    __nv_bfloat162(const __nv_bfloat162_raw& raw) : x(__nv_bfloat16_raw{raw.x}), y(__nv_bfloat16_raw{raw.y}) {}
    operator __nv_bfloat162_raw() const { return {x.lk_bits, y.lk_bits}; }
    LK_WHOLE
};

#define LK_NUMBER __nv_bfloat16
#define LK_PAIR __nv_bfloat162
#define LK_FUNCTIONS bfloat16_functions
#include "lk/number16.h"
#undef LK_NUMBER
#undef LK_PAIR
#undef LK_FUNCTIONS
