// convert16.h: conversions of half and bfloat16 whose names differ by the type. Rounding is to the nearest even unless said.
#pragma once

#include "lk/bfloat16.h"
#include "lk/floats.h"

namespace lk {

// The neighbour of the nearest value in the asked direction, where the nearest lies on the other side.
template <class Number>
LK_INLINE Number directed(double value, int mode) {
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
    LK_INLINE Number __int2##type##_rn(int x) { return Number(x); } \
    LK_INLINE Number __int2##type##_rz(int x) { return lk::directed<Number>(x, FE_TOWARDZERO); } \
    LK_INLINE Number __uint2##type##_rn(unsigned x) { return Number(x); } \
    LK_INLINE Number __short2##type##_rn(short x) { return Number(x); } \
    LK_INLINE Number __ushort2##type##_rn(unsigned short x) { return Number(x); } \
    LK_INLINE Number __ll2##type##_rn(long long x) { return Number(x); } \
    LK_INLINE Number __ull2##type##_rn(unsigned long long x) { return Number(x); } \
    LK_INLINE int __##type##2int_rn(Number x) { return lk::to_saturated<int>(float(x), FE_TONEAREST); } \
    LK_INLINE int __##type##2int_rz(Number x) { return lk::to_saturated<int>(float(x), FE_TOWARDZERO); } \
    LK_INLINE int __##type##2int_ru(Number x) { return lk::to_saturated<int>(float(x), FE_UPWARD); } \
    LK_INLINE int __##type##2int_rd(Number x) { return lk::to_saturated<int>(float(x), FE_DOWNWARD); } \
    LK_INLINE unsigned __##type##2uint_rn(Number x) { return lk::to_saturated<unsigned>(float(x), FE_TONEAREST); } \
    LK_INLINE unsigned __##type##2uint_rz(Number x) { return lk::to_saturated<unsigned>(float(x), FE_TOWARDZERO); } \
    LK_INLINE short __##type##2short_rn(Number x) { return lk::to_saturated<short>(float(x), FE_TONEAREST); } \
    LK_INLINE short __##type##2short_rz(Number x) { return lk::to_saturated<short>(float(x), FE_TOWARDZERO); } \
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

namespace lk {
namespace half_functions {
LK_CONVERSIONS(__half, __half2, __half_raw, half, half2, make_half2)
LK_INLINE float __half2float(__half x) { return float(x); }
LK_INLINE double __half2double(__half x) { return double(float(x)); }
}  // namespace half_functions
namespace bfloat16_functions {
LK_CONVERSIONS(__nv_bfloat16, __nv_bfloat162, __nv_bfloat16_raw, bfloat16, bfloat162, make_bfloat162)
LK_INLINE float __bfloat162float(__nv_bfloat16 x) { return float(x); }
}  // namespace bfloat16_functions
}  // namespace lk
// clang-format on

#undef LK_CONVERSIONS
