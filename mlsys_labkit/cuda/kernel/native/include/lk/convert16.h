// convert16.h: conversions of half and bfloat16 whose names differ by the type. Rounding is to the nearest even unless said.
#pragma once

#include "lk/bfloat16.h"
#include "lk/floats.h"

namespace lk {

// The neighbour of the nearest value in the asked direction, where the nearest lies on the other side.
template <class Number>
LK_INLINE auto directed(double value, int mode) {
    Number nearest(value);
    const double got = double(float(nearest));
    if (got == value || value != value) {
        return nearest;
    }
    const bool up = mode == FE_UPWARD || (mode == FE_TOWARDZERO && value < 0);
    if (up ? got > value : got < value) {
        return nearest;
    }
    if (got == 0) {
        nearest.lk_bits = up ? 0x0001 : 0x8001;
    } else {
        nearest.lk_bits += (got > 0) == up ? 1 : -1;
    }
    return nearest;
}

// The same for an integer. Beyond 53 bits, the last that a double keeps says whether there was more.
template <class Number, class Integer>
LK_INLINE auto from_integer(Integer x, int mode) {
    const bool exact = x / (1ll << 53) == 0 || (x & 0x7ff) == 0;
    const double value = exact ? double(x) : double((x & ~Integer(0x7ff)) | 0x800);
    return mode == FE_TONEAREST ? Number(value) : directed<Number>(value, mode);
}

}  // namespace lk

// clang-format off
// Type is how names call the number, Pair how they call two.
#define LK_CONVERSIONS(Number, Two, Raw, type, pair, make_pair) \
    LK_INLINE Number __float2##type(float x) { return Number(x); } \
    LK_INLINE Number __float2##type##_rn(float x) { return Number(x); } \
    LK_INLINE Number __float2##type##_rz(float x) { return lk::directed<Number>(x, FE_TOWARDZERO); } \
    LK_INLINE Number __float2##type##_ru(float x) { return lk::directed<Number>(x, FE_UPWARD); } \
    LK_INLINE Number __float2##type##_rd(float x) { return lk::directed<Number>(x, FE_DOWNWARD); } \
    LK_INLINE Number __double2##type(double x) { return Number(x); } \
    LK_INLINE short __##type##_as_short(Number x) { return short(x.lk_bits); } \
    LK_INLINE unsigned short __##type##_as_ushort(Number x) { return x.lk_bits; } \
    LK_INLINE Number __short_as_##type(short x) { Number made; made.lk_bits = (unsigned short)x; return made; } \
    LK_INLINE Number __ushort_as_##type(unsigned short x) { Number made; made.lk_bits = x; return made; } \
    LK_INLINE Two __float2##pair##_rn(float x) { return {Number(x), Number(x)}; } \
    LK_INLINE Two __floats2##pair##_rn(float x, float y) { return {Number(x), Number(y)}; } \
    LK_INLINE Two __float22##pair##_rn(float2 v) { return {Number(v.x), Number(v.y)}; } \
    LK_INLINE float2 __##pair##2float2(Two v) { return make_float2(float(v.x), float(v.y)); } \
    LK_INLINE Two __##type##2##pair(Number x) { return {x, x}; } \
    LK_INLINE Two __halves2##pair(Number x, Number y) { return {x, y}; } \
    LK_INLINE Two make_pair(Number x, Number y) { return {x, y}; } \
    LK_INLINE Number __low2##type(Two v) { return v.x; } \
    LK_INLINE Number __high2##type(Two v) { return v.y; } \
    LK_INLINE Two __low2##pair(Two v) { return {v.x, v.x}; } \
    LK_INLINE Two __high2##pair(Two v) { return {v.y, v.y}; } \
    LK_INLINE Two __lows2##pair(Two a, Two b) { return {a.x, b.x}; } \
    LK_INLINE Two __highs2##pair(Two a, Two b) { return {a.y, b.y}; } \
    LK_INLINE Two __lowhigh2highlow(Two v) { return {v.y, v.x}; } \
    LK_INLINE float __low2float(Two v) { return float(v.x); } \
    LK_INLINE float __high2float(Two v) { return float(v.y); }

#define LK_INTEGER(Number, type, Integer, integer) \
    LK_INLINE Number __##integer##2##type##_rn(Integer x) { return lk::from_integer<Number>(x, FE_TONEAREST); } \
    LK_INLINE Number __##integer##2##type##_rz(Integer x) { return lk::from_integer<Number>(x, FE_TOWARDZERO); } \
    LK_INLINE Number __##integer##2##type##_ru(Integer x) { return lk::from_integer<Number>(x, FE_UPWARD); } \
    LK_INLINE Number __##integer##2##type##_rd(Integer x) { return lk::from_integer<Number>(x, FE_DOWNWARD); } \
    LK_INLINE Integer __##type##2##integer##_rn(Number x) { return lk::to_saturated<Integer>(float(x), FE_TONEAREST); } \
    LK_INLINE Integer __##type##2##integer##_rz(Number x) { return lk::to_saturated<Integer>(float(x), FE_TOWARDZERO); } \
    LK_INLINE Integer __##type##2##integer##_ru(Number x) { return lk::to_saturated<Integer>(float(x), FE_UPWARD); } \
    LK_INLINE Integer __##type##2##integer##_rd(Number x) { return lk::to_saturated<Integer>(float(x), FE_DOWNWARD); }

#define LK_INTEGERS(Number, type) \
    LK_INTEGER(Number, type, short, short) \
    LK_INTEGER(Number, type, unsigned short, ushort) \
    LK_INTEGER(Number, type, int, int) \
    LK_INTEGER(Number, type, unsigned, uint) \
    LK_INTEGER(Number, type, long long, ll) \
    LK_INTEGER(Number, type, unsigned long long, ull) \
    LK_INLINE signed char __##type##2char_rz(Number x) { return lk::to_saturated<signed char>(float(x), FE_TOWARDZERO); } \
    LK_INLINE unsigned char __##type##2uchar_rz(Number x) { return lk::to_saturated<unsigned char>(float(x), FE_TOWARDZERO); }

namespace lk {
namespace half_functions {
LK_CONVERSIONS(__half, __half2, __half_raw, half, half2, make_half2)
LK_INTEGERS(__half, half)
LK_INLINE float __half2float(__half x) { return float(x); }
LK_INLINE double __half2double(__half x) { return double(float(x)); }
}  // namespace half_functions
namespace bfloat16_functions {
LK_CONVERSIONS(__nv_bfloat16, __nv_bfloat162, __nv_bfloat16_raw, bfloat16, bfloat162, make_bfloat162)
LK_INTEGERS(__nv_bfloat16, bfloat16)
LK_INLINE float __bfloat162float(__nv_bfloat16 x) { return float(x); }
}  // namespace bfloat16_functions
}  // namespace lk
// clang-format on

#undef LK_CONVERSIONS
#undef LK_INTEGERS
#undef LK_INTEGER
