// floats.h: CUDA's intrinsics and extra functions on float and double.
//
// Fast-math intrinsics (__expf and the like) give the accurate function's value: nearer to the truth than a GPU's.
#pragma once

#include <cfenv>
#include <cmath>

#include "lk/qualifiers.h"

namespace lk {

template <class To, class From>
LK_INLINE auto same_bits(From from) {
    static_assert(sizeof(To) == sizeof(From), "both have one size");
    To to;
    __builtin_memcpy(&to, &from, sizeof to);
    return to;
}

// An operation in another rounding mode than the nearest. Opaque, and its operands volatile: gcc takes the mode for fixed.
template <class Number, class Operation>
LK_OPAQUE auto rounded(int mode, Number a, Number b, Number c, Operation operation) {
    volatile Number x = a, y = b, z = c;
    const int before = fegetround();
    fesetround(mode);
    volatile Number result = operation(Number(x), Number(y), Number(z));
    fesetround(before);
    return result;
}

template <class Number>
LK_INLINE auto to_integer(Number x, int mode) {
    switch (mode) {
        case FE_TOWARDZERO: return std::trunc(x);
        case FE_UPWARD: return std::ceil(x);
        case FE_DOWNWARD: return std::floor(x);
        default: return std::nearbyint(x);
    }
}

// As the GPU converts: what does not fit becomes the nearest that does; NaN becomes 0, or the top bit for 64 bits.
template <class Integer, class Number>
LK_INLINE auto to_saturated(Number x, int mode) {
    constexpr Integer least = std::numeric_limits<Integer>::min();
    constexpr Integer most = std::numeric_limits<Integer>::max();
    if (x != x) {
        return sizeof(Integer) == 8 ? Integer(1ull << 63) : Integer(0);
    }
    const Number whole = to_integer(x, mode);
    return whole <= Number(least) ? least : whole >= Number(most) ? most : Integer(whole);
}

template <class Number, class Wide>
LK_OPAQUE auto narrowed(int mode, Wide value) {
    volatile Wide from = value;
    const int before = fegetround();
    fesetround(mode);
    volatile Number result = Number(from);
    fesetround(before);
    return result;
}

}  // namespace lk

// clang-format off
LK_INLINE int __float_as_int(float x) { return lk::same_bits<int>(x); }
LK_INLINE unsigned __float_as_uint(float x) { return lk::same_bits<unsigned>(x); }
LK_INLINE float __int_as_float(int x) { return lk::same_bits<float>(x); }
LK_INLINE float __uint_as_float(unsigned x) { return lk::same_bits<float>(x); }
LK_INLINE long long __double_as_longlong(double x) { return lk::same_bits<long long>(x); }
LK_INLINE double __longlong_as_double(long long x) { return lk::same_bits<double>(x); }
LK_INLINE int __double2hiint(double x) { return int(lk::same_bits<unsigned long long>(x) >> 32); }
LK_INLINE int __double2loint(double x) { return int(lk::same_bits<unsigned long long>(x)); }
LK_INLINE double __hiloint2double(int high, int low) { return lk::same_bits<double>((unsigned long long)unsigned(high) << 32 | unsigned(low)); }

// x, second and third are the operands (0 for those there are not); the suffix is the rounding mode.
#define LK_ROUNDED(Number, prefix, name, parameters, second, third, formula) \
    LK_INLINE Number prefix##name##_rn parameters { return formula; } \
    LK_INLINE Number prefix##name##_rz parameters { return lk::rounded<Number>(FE_TOWARDZERO, x, second, third, [](Number x, Number y, Number z) LK_UNRECORDED { (void)y; (void)z; return formula; }); } \
    LK_INLINE Number prefix##name##_ru parameters { return lk::rounded<Number>(FE_UPWARD, x, second, third, [](Number x, Number y, Number z) LK_UNRECORDED { (void)y; (void)z; return formula; }); } \
    LK_INLINE Number prefix##name##_rd parameters { return lk::rounded<Number>(FE_DOWNWARD, x, second, third, [](Number x, Number y, Number z) LK_UNRECORDED { (void)y; (void)z; return formula; }); }

LK_ROUNDED(float, __f, add, (float x, float y), y, 0, x + y)
LK_ROUNDED(float, __f, sub, (float x, float y), y, 0, x - y)
LK_ROUNDED(float, __f, mul, (float x, float y), y, 0, x * y)
LK_ROUNDED(float, __f, div, (float x, float y), y, 0, x / y)
LK_ROUNDED(float, __f, maf, (float x, float y, float z), y, z, __builtin_fmaf(x, y, z))
LK_ROUNDED(float, __f, sqrt, (float x), 0, 0, __builtin_sqrtf(x))
LK_ROUNDED(float, __f, rcp, (float x), 0, 0, 1.0f / x)
LK_ROUNDED(double, __d, add, (double x, double y), y, 0, x + y)
LK_ROUNDED(double, __d, sub, (double x, double y), y, 0, x - y)
LK_ROUNDED(double, __d, mul, (double x, double y), y, 0, x * y)
LK_ROUNDED(double, __d, div, (double x, double y), y, 0, x / y)
LK_ROUNDED(double, __, fma, (double x, double y, double z), y, z, __builtin_fma(x, y, z))
LK_ROUNDED(double, __d, sqrt, (double x), 0, 0, __builtin_sqrt(x))
LK_ROUNDED(double, __d, rcp, (double x), 0, 0, 1.0 / x)
#undef LK_ROUNDED
LK_INLINE float __frsqrt_rn(float x) { return float(1.0 / __builtin_sqrt(double(x))); }

#define LK_TO_INTEGER(from, Number, to, Integer) \
    LK_INLINE Integer __##from##2##to##_rn(Number x) { return lk::to_saturated<Integer>(x, FE_TONEAREST); } \
    LK_INLINE Integer __##from##2##to##_rz(Number x) { return lk::to_saturated<Integer>(x, FE_TOWARDZERO); } \
    LK_INLINE Integer __##from##2##to##_ru(Number x) { return lk::to_saturated<Integer>(x, FE_UPWARD); } \
    LK_INLINE Integer __##from##2##to##_rd(Number x) { return lk::to_saturated<Integer>(x, FE_DOWNWARD); }
#define LK_FROM(from, Wide, to, Number) \
    LK_INLINE Number __##from##2##to##_rn(Wide x) { return Number(x); } \
    LK_INLINE Number __##from##2##to##_rz(Wide x) { return lk::narrowed<Number>(FE_TOWARDZERO, x); } \
    LK_INLINE Number __##from##2##to##_ru(Wide x) { return lk::narrowed<Number>(FE_UPWARD, x); } \
    LK_INLINE Number __##from##2##to##_rd(Wide x) { return lk::narrowed<Number>(FE_DOWNWARD, x); }

LK_TO_INTEGER(float, float, int, int)
LK_TO_INTEGER(float, float, uint, unsigned)
LK_TO_INTEGER(float, float, ll, long long)
LK_TO_INTEGER(float, float, ull, unsigned long long)
LK_TO_INTEGER(double, double, int, int)
LK_TO_INTEGER(double, double, uint, unsigned)
LK_TO_INTEGER(double, double, ll, long long)
LK_TO_INTEGER(double, double, ull, unsigned long long)
LK_FROM(int, int, float, float)
LK_FROM(uint, unsigned, float, float)
LK_FROM(ll, long long, float, float)
LK_FROM(ull, unsigned long long, float, float)
LK_FROM(ll, long long, double, double)
LK_FROM(ull, unsigned long long, double, double)
LK_FROM(double, double, float, float)
LK_INLINE double __int2double_rn(int x) { return x; }
LK_INLINE double __uint2double_rn(unsigned x) { return x; }
#undef LK_TO_INTEGER
#undef LK_FROM

// glibc declares these names, with C linkage, as its own insides.
extern "C" {
#define LK_FAST(name, formula) LK_INLINE float name(float x) noexcept { return formula; }
LK_FAST(__expf, expf(x))
LK_FAST(__exp10f, float(pow(10.0, double(x))))
LK_FAST(__logf, logf(x))
LK_FAST(__log2f, log2f(x))
LK_FAST(__log10f, log10f(x))
LK_FAST(__sinf, sinf(x))
LK_FAST(__cosf, cosf(x))
LK_FAST(__tanf, tanf(x))
LK_FAST(__tanhf, tanhf(x))
#undef LK_FAST
LK_INLINE float __powf(float x, float y) noexcept { return powf(x, y); }
LK_INLINE void __sincosf(float x, float* sine, float* cosine) noexcept { *sine = sinf(x); *cosine = cosf(x); }
}
LK_INLINE float __fdividef(float x, float y) { return x / y; }
LK_INLINE float fdividef(float x, float y) { return x / y; }
LK_INLINE float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }

// Functions that CUDA has and <cmath> has not, in float and double.
#define LK_EXTRA(name, formula) \
    LK_INLINE double name(double x) { return formula; } \
    LK_INLINE float name##f(float given) { const double x = given; return float(formula); } \
    LK_INLINE float name(float x) { return name##f(x); }
LK_EXTRA(rsqrt, 1.0 / ::sqrt(x))
LK_EXTRA(rcbrt, 1.0 / ::cbrt(x))
LK_EXTRA(sinpi, ::sin(M_PI * ::fmod(x, 2.0)))
LK_EXTRA(cospi, ::cos(M_PI * ::fmod(x, 2.0)))
LK_EXTRA(normcdf, 0.5 * ::erfc(-x * M_SQRT1_2))
#undef LK_EXTRA
LK_INLINE void sincospi(double x, double* sine, double* cosine) { *sine = sinpi(x); *cosine = cospi(x); }
LK_INLINE void sincospif(float x, float* sine, float* cosine) { *sine = sinpif(x); *cosine = cospif(x); }
LK_INLINE double rhypot(double x, double y) { return 1.0 / ::hypot(x, y); }
LK_INLINE float rhypotf(float x, float y) { return float(rhypot(double(x), double(y))); }
LK_INLINE double norm3d(double x, double y, double z) { return ::sqrt(x * x + y * y + z * z); }
LK_INLINE float norm3df(float x, float y, float z) { return float(norm3d(x, y, z)); }
LK_INLINE double rnorm3d(double x, double y, double z) { return 1.0 / norm3d(x, y, z); }
LK_INLINE float rnorm3df(float x, float y, float z) { return float(rnorm3d(x, y, z)); }
LK_INLINE double norm4d(double x, double y, double z, double w) { return ::sqrt(x * x + y * y + z * z + w * w); }
LK_INLINE float norm4df(float x, float y, float z, float w) { return float(norm4d(x, y, z, w)); }
LK_INLINE double rnorm4d(double x, double y, double z, double w) { return 1.0 / norm4d(x, y, z, w); }
LK_INLINE float rnorm4df(float x, float y, float z, float w) { return float(rnorm4d(x, y, z, w)); }

// float overloads of what glibc has in double only
LK_INLINE void sincos(float x, float* sine, float* cosine) { ::sincosf(x, sine, cosine); }
// clang-format on
