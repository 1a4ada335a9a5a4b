// fp8.h: the 8-bit numbers e4m3 and e5m2: conversions, rounded to the nearest even, saturated unless told otherwise.
//
// Reference: Micikevicius et al., "FP8 Formats for Deep Learning" (2022).
#pragma once

#include <cmath>

#include "lk/bfloat16.h"
#include "lk/half.h"
#include "lk/vectors.h"

typedef unsigned char __nv_fp8_storage_t;
typedef unsigned short __nv_fp8x2_storage_t;
typedef unsigned int __nv_fp8x4_storage_t;

enum __nv_saturation_t { __NV_NOSAT, __NV_SATFINITE };
enum __nv_fp8_interpretation_t { __NV_E4M3, __NV_E5M2 };

namespace lk {

struct Fp8Format {
    int fraction_bits;
    int bias;
    unsigned char largest;   // finite
    unsigned char overflow;  // what does not fit, where it is not saturated
};

constexpr unsigned char fp8_nan = 0x7f;

constexpr Fp8Format fp8_format(__nv_fp8_interpretation_t kind) {
    return kind == __NV_E4M3 ? Fp8Format{3, 7, 0x7e, fp8_nan} : Fp8Format{2, 15, 0x7b, 0x7c};
}

LK_INLINE __nv_fp8_storage_t to_fp8(double value, __nv_saturation_t saturation, __nv_fp8_interpretation_t kind) {
    const Fp8Format format = fp8_format(kind);
    if (value != value) {
        return fp8_nan;
    }
    const unsigned char sign = __builtin_signbit(value) ? 0x80 : 0;
    const double magnitude = __builtin_fabs(value);
    if (magnitude == 0.0) {
        return sign;
    }
    const unsigned char beyond = saturation == __NV_SATFINITE ? format.largest : format.overflow;
    if (__builtin_isinf(magnitude)) {
        return sign | beyond;
    }
    int exponent;
    frexp(magnitude, &exponent);
    const int biased = exponent - 1 + format.bias > 1 ? exponent - 1 + format.bias : 1;
    const double steps = nearbyint(ldexp(magnitude, format.fraction_bits + format.bias - biased));
    const double code = steps + double((biased - 1) << format.fraction_bits);
    return sign | (code > format.largest ? beyond : static_cast<unsigned char>(code));
}

LK_INLINE float from_fp8(__nv_fp8_storage_t code, __nv_fp8_interpretation_t kind) {
    const Fp8Format format = fp8_format(kind);
    const int magnitude = code & 0x7f;
    if (magnitude > format.largest) {
        const float special = magnitude == format.overflow && format.overflow != fp8_nan ? INFINITY : NAN;
        return code & 0x80 ? -special : special;
    }
    const int fraction = magnitude & ((1 << format.fraction_bits) - 1);
    const int biased = magnitude >> format.fraction_bits;
    const int steps = biased ? fraction + (1 << format.fraction_bits) : fraction;
    const double value = ldexp(double(steps), (biased ? biased : 1) - format.bias - format.fraction_bits);
    return float(code & 0x80 ? -value : value);
}

}  // namespace lk

// clang-format off
LK_INLINE __nv_fp8_storage_t __nv_cvt_double_to_fp8(double x, __nv_saturation_t saturation, __nv_fp8_interpretation_t kind) { return lk::to_fp8(x, saturation, kind); }
LK_INLINE __nv_fp8_storage_t __nv_cvt_float_to_fp8(float x, __nv_saturation_t saturation, __nv_fp8_interpretation_t kind) { return lk::to_fp8(x, saturation, kind); }
LK_INLINE __nv_fp8_storage_t __nv_cvt_halfraw_to_fp8(__half_raw x, __nv_saturation_t saturation, __nv_fp8_interpretation_t kind) { return lk::to_fp8(float(__half(x)), saturation, kind); }
LK_INLINE __nv_fp8_storage_t __nv_cvt_bfloat16raw_to_fp8(__nv_bfloat16_raw x, __nv_saturation_t saturation, __nv_fp8_interpretation_t kind) { return lk::to_fp8(float(__nv_bfloat16(x)), saturation, kind); }
LK_INLINE __half_raw __nv_cvt_fp8_to_halfraw(__nv_fp8_storage_t x, __nv_fp8_interpretation_t kind) { return __half(lk::from_fp8(x, kind)); }
LK_INLINE __nv_fp8x2_storage_t __nv_cvt_float2_to_fp8x2(float2 v, __nv_saturation_t saturation, __nv_fp8_interpretation_t kind) {
    return static_cast<__nv_fp8x2_storage_t>(lk::to_fp8(v.x, saturation, kind) | lk::to_fp8(v.y, saturation, kind) << 8);
}
LK_INLINE __nv_fp8x2_storage_t __nv_cvt_halfraw2_to_fp8x2(__half2_raw v, __nv_saturation_t saturation, __nv_fp8_interpretation_t kind) {
    const __half2 pair(v);
    return __nv_cvt_float2_to_fp8x2(make_float2(float(pair.x), float(pair.y)), saturation, kind);
}
LK_INLINE __half2_raw __nv_cvt_fp8x2_to_halfraw2(__nv_fp8x2_storage_t v, __nv_fp8_interpretation_t kind) {
    return __half2(__half(lk::from_fp8(v & 0xff, kind)), __half(lk::from_fp8(v >> 8, kind)));
}

// One number, two, and four; as in CUDA, all conversions have to be asked for.
#define LK_FP8(Number, Pair, Four, kind)                                                                                 \
    struct Number {                                                                                                      \
        __nv_fp8_storage_t __x;                                                                                          \
        Number() = default;                                                                                              \
        LK_INLINE explicit Number(float x) : __x(lk::to_fp8(x, __NV_SATFINITE, kind)) {}                                 \
        LK_INLINE explicit Number(double x) : __x(lk::to_fp8(x, __NV_SATFINITE, kind)) {}                                \
        LK_INLINE explicit Number(int x) : Number(double(x)) {}                                                          \
        LK_INLINE explicit Number(unsigned x) : Number(double(x)) {}                                                     \
        LK_INLINE explicit Number(short x) : Number(double(x)) {}                                                        \
        LK_INLINE explicit Number(unsigned short x) : Number(double(x)) {}                                               \
        LK_INLINE explicit Number(long x) : Number(double(x)) {}                                                         \
        LK_INLINE explicit Number(unsigned long x) : Number(double(x)) {}                                                \
        LK_INLINE explicit Number(long long x) : Number(double(x)) {}                                                    \
        LK_INLINE explicit Number(unsigned long long x) : Number(double(x)) {}                                           \
        LK_INLINE explicit Number(__half x) : Number(float(x)) {}                                                        \
        LK_INLINE explicit Number(__nv_bfloat16 x) : Number(float(x)) {}                                                 \
        LK_INLINE explicit operator float() const { return lk::from_fp8(__x, kind); }                                    \
        LK_INLINE explicit operator double() const { return double(float(*this)); }                                      \
        LK_INLINE explicit operator __half() const { return __half(float(*this)); }                                      \
        LK_INLINE explicit operator __nv_bfloat16() const { return __nv_bfloat16(float(*this)); }                        \
        LK_INLINE explicit operator int() const { return int(float(*this)); }                                            \
        LK_INLINE explicit operator unsigned() const { return unsigned(float(*this)); }                                  \
        LK_INLINE explicit operator bool() const { return (__x & 0x7f) != 0; }                                           \
    };                                                                                                                   \
    struct Pair {                                                                                                        \
        __nv_fp8x2_storage_t __x;                                                                                        \
        Pair() = default;                                                                                                \
        LK_INLINE explicit Pair(float2 v) : __x(__nv_cvt_float2_to_fp8x2(v, __NV_SATFINITE, kind)) {}                    \
        LK_INLINE explicit Pair(__half2 v) : __x(__nv_cvt_halfraw2_to_fp8x2(v, __NV_SATFINITE, kind)) {}                 \
        LK_INLINE explicit Pair(double2 v) : Pair(make_float2(float(v.x), float(v.y))) {}                                \
        LK_INLINE explicit Pair(__nv_bfloat162 v) : Pair(make_float2(float(v.x), float(v.y))) {}                         \
        LK_INLINE explicit operator float2() const {                                                                     \
            return make_float2(lk::from_fp8(__x & 0xff, kind), lk::from_fp8(__x >> 8, kind));                            \
        }                                                                                                                \
        LK_INLINE explicit operator __half2() const { return __half2(__nv_cvt_fp8x2_to_halfraw2(__x, kind)); }           \
    };                                                                                                                   \
    struct Four {                                                                                                        \
        __nv_fp8x4_storage_t __x;                                                                                        \
        Four() = default;                                                                                                \
        LK_INLINE explicit Four(float4 v)                                                                                \
            : __x(unsigned(__nv_cvt_float2_to_fp8x2(make_float2(v.x, v.y), __NV_SATFINITE, kind)) |                      \
                  unsigned(__nv_cvt_float2_to_fp8x2(make_float2(v.z, v.w), __NV_SATFINITE, kind)) << 16) {}              \
        LK_INLINE explicit Four(double4 v) : Four(make_float4(float(v.x), float(v.y), float(v.z), float(v.w))) {}        \
        LK_INLINE explicit Four(__half2 low, __half2 high)                                                               \
            : Four(make_float4(float(low.x), float(low.y), float(high.x), float(high.y))) {}                             \
        LK_INLINE explicit Four(__nv_bfloat162 low, __nv_bfloat162 high)                                                 \
            : Four(make_float4(float(low.x), float(low.y), float(high.x), float(high.y))) {}                             \
        LK_INLINE explicit operator float4() const {                                                                     \
            return make_float4(lk::from_fp8(__x & 0xff, kind), lk::from_fp8(__x >> 8 & 0xff, kind),                      \
                               lk::from_fp8(__x >> 16 & 0xff, kind), lk::from_fp8(__x >> 24, kind));                     \
        }                                                                                                                \
    };
// clang-format on

LK_FP8(__nv_fp8_e4m3, __nv_fp8x2_e4m3, __nv_fp8x4_e4m3, __NV_E4M3)
LK_FP8(__nv_fp8_e5m2, __nv_fp8x2_e5m2, __nv_fp8x4_e5m2, __NV_E5M2)

#undef LK_FP8
