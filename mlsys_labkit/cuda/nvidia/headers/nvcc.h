// What nvcc includes before the first line of any source, and NVRTC does not: names that kernels use without a thought.
#pragma once

#if __has_include(<cuda/std/climits>)
#include <cuda/std/climits>
#endif

// In the types of the CUDA C++ library (CCCL) under NVRTC, which may declare them again.
using int8_t = signed char;
using int16_t = signed short;
using int32_t = signed int;
using int64_t = signed long long;
using time_t = long long int;
using ushort = unsigned short;
using uint = unsigned int;
using ulong = unsigned long;

#define INFINITY (__builtin_bit_cast(float, 0x7f800000))
#define NAN (__builtin_bit_cast(float, 0x7fc00000))
#define HUGE_VALF INFINITY
#define HUGE_VAL (__builtin_bit_cast(double, 0x7ff0000000000000))
#define M_E 2.7182818284590452354
#define M_LOG2E 1.4426950408889634074
#define M_LOG10E 0.43429448190325182765
#define M_LN2 0.69314718055994530942
#define M_LN10 2.30258509299404568402
#define M_PI 3.14159265358979323846
#define M_PI_2 1.57079632679489661923
#define M_PI_4 0.78539816339744830962
#define M_1_PI 0.31830988618379067154
#define M_2_PI 0.63661977236758134308
#define M_2_SQRTPI 1.12837916709551257390
#define M_SQRT2 1.41421356237309504880
#define M_SQRT1_2 0.70710678118654752440

#define EOF (-1)
#define RAND_MAX 2147483647
#define EXIT_SUCCESS 0
#define EXIT_FAILURE 1

namespace std {
using ::abs, ::acos, ::acosh, ::asin, ::asinh, ::atan, ::atan2, ::atanh, ::cbrt, ::ceil, ::copysign, ::cos, ::cosh,
    ::erf, ::erfc, ::exp, ::exp2, ::expm1, ::fabs, ::fdim, ::floor, ::fma, ::fmax, ::fmin, ::fmod, ::frexp, ::hypot,
    ::ilogb, ::int16_t, ::int32_t, ::int64_t, ::int8_t, ::isfinite, ::isinf, ::isnan, ::ldexp, ::lgamma, ::llrint,
    ::llround, ::log, ::log10, ::log1p, ::log2, ::logb, ::lrint, ::lround, ::memcpy, ::memset, ::modf, ::nan,
    ::nearbyint, ::nextafter, ::pow, ::printf, ::ptrdiff_t, ::remainder, ::remquo, ::rint, ::round, ::scalbln,
    ::scalbn, ::signbit, ::sin, ::sinh, ::size_t, ::sqrt, ::tan, ::tanh, ::tgamma, ::time_t, ::trunc;
typedef decltype(nullptr) nullptr_t;
}
