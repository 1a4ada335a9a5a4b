// minmax.h: min, max and abs at global scope, for the pairs of types that CUDA has them for.
#pragma once

#include "lk/qualifiers.h"

namespace lk {

template <class Value>
constexpr LK_INLINE auto smaller_of(Value a, Value b) {
    return b < a ? b : a;
}

template <class Value>
constexpr LK_INLINE auto larger_of(Value a, Value b) {
    return a < b ? b : a;
}

}  // namespace lk

#define LK_MIN_MAX(Left, Right, Result)                                                      \
    constexpr LK_INLINE Result min(Left a, Right b) { return lk::smaller_of<Result>(a, b); } \
    constexpr LK_INLINE Result max(Left a, Right b) { return lk::larger_of<Result>(a, b); }

#define LK_MIN_MAX_INTEGERS(Signed, Unsigned)    \
    LK_MIN_MAX(Signed, Signed, Signed)           \
    LK_MIN_MAX(Unsigned, Unsigned, Unsigned)     \
    LK_MIN_MAX(Signed, Unsigned, Unsigned)       \
    LK_MIN_MAX(Unsigned, Signed, Unsigned)

LK_MIN_MAX_INTEGERS(int, unsigned int)
LK_MIN_MAX_INTEGERS(long, unsigned long)
LK_MIN_MAX_INTEGERS(long long, unsigned long long)

// As fminf: a number wins over a NaN.
LK_INLINE float min(float a, float b) { return fminf(a, b); }
LK_INLINE float max(float a, float b) { return fmaxf(a, b); }
LK_INLINE double min(double a, double b) { return fmin(a, b); }
LK_INLINE double max(double a, double b) { return fmax(a, b); }
LK_INLINE double min(float a, double b) { return fmin(double(a), b); }
LK_INLINE double max(float a, double b) { return fmax(double(a), b); }
LK_INLINE double min(double a, float b) { return fmin(a, double(b)); }
LK_INLINE double max(double a, float b) { return fmax(a, double(b)); }

// A function of the same name and parameters is preferred to a template: a .cpp file may have its own.
#define LK_IF_NO_OTHER template <class = void>

LK_IF_NO_OTHER LK_INLINE unsigned umin(unsigned a, unsigned b) { return min(a, b); }
LK_IF_NO_OTHER LK_INLINE unsigned umax(unsigned a, unsigned b) { return max(a, b); }
LK_IF_NO_OTHER LK_INLINE long long llmin(long long a, long long b) { return min(a, b); }
LK_IF_NO_OTHER LK_INLINE long long llmax(long long a, long long b) { return max(a, b); }
LK_IF_NO_OTHER LK_INLINE unsigned long long ullmin(unsigned long long a, unsigned long long b) { return min(a, b); }
LK_IF_NO_OTHER LK_INLINE unsigned long long ullmax(unsigned long long a, unsigned long long b) { return max(a, b); }
