// half.h: __half and __half2, rounded to the nearest even after each operation, as the GPU does.
#pragma once

#include <cmath>
#include <cstring>

#include "lk/atomics.h"
#include "lk/vectors.h"
#include "lk/warp.h"

struct __half_raw {
    unsigned short x;
};

struct alignas(4) __half2_raw {
    unsigned short x, y;
};

namespace lk {

// Integers pass through double, which holds all that half can tell apart.
template <class Wider>
LK_INLINE unsigned short half_bits(Wider wider) {
    const _Float16 value = _Float16(wider);
    unsigned short bits;
    __builtin_memcpy(&bits, &value, sizeof bits);
    return wider != wider ? 0x7fff : bits;  // the GPU's one NaN
}

LK_INLINE _Float16 half_value(unsigned short bits) {
    _Float16 value;
    __builtin_memcpy(&value, &bits, sizeof value);
    return value;
}

}  // namespace lk

struct __half {
    unsigned short lk_bits;

    __half() = default;
    constexpr __half(__half_raw raw) : lk_bits(raw.x) {}
    // clang-format off
    __half(float value) : lk_bits(lk::half_bits(value)) {}
    __half(double value) : lk_bits(lk::half_bits(value)) {}
    __half(short value) : __half(double(value)) {}
    __half(unsigned short value) : __half(double(value)) {}
    __half(int value) : __half(double(value)) {}
    __half(unsigned int value) : __half(double(value)) {}
    __half(long value) : __half(double(value)) {}
    __half(unsigned long value) : __half(double(value)) {}
    __half(long long value) : __half(double(value)) {}
    __half(unsigned long long value) : __half(double(value)) {}

    operator float() const { return float(lk::half_value(lk_bits)); }
    operator __half_raw() const { return {lk_bits}; }
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
    __half& operator=(Number value) {
        return *this = __half(value);
    }
};

struct alignas(4) __half2 {
    __half x, y;

    __half2() = default;
    __half2(const __half& low, const __half& high) : x(low), y(high) {}
    __half2(const __half2_raw& raw) : x(__half_raw{raw.x}), y(__half_raw{raw.y}) {}
    operator __half2_raw() const { return {x.lk_bits, y.lk_bits}; }
    LK_WHOLE
};

#define LK_NUMBER __half
#define LK_PAIR __half2
#define LK_FUNCTIONS half_functions
#include "lk/number16.h"
#undef LK_NUMBER
#undef LK_PAIR
#undef LK_FUNCTIONS
