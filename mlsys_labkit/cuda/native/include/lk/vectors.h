// vectors.h: float4 and its relatives: plain aggregates that are read and written as a whole, in one access.
#pragma once

#include "lk/qualifiers.h"

#ifdef __SANITIZE_THREAD__

namespace lk {

// The type of one access as wide as a vector.
// clang-format off
template <int bytes> struct Wide;
template <> struct Wide<2> { typedef unsigned short Type __attribute__((may_alias)); };
template <> struct Wide<4> { typedef unsigned int Type __attribute__((may_alias)); };
template <> struct Wide<8> { typedef unsigned long long Type __attribute__((may_alias)); };
template <> struct Wide<16> { typedef unsigned long long Type __attribute__((vector_size(16), may_alias)); };
// clang-format on

template <class Vector>
LK_INLINE void copy_whole(Vector* to, const Vector* from) {
    constexpr int bytes = sizeof(Vector) < 16 ? sizeof(Vector) : 16;
    typedef typename Wide<bytes>::Type Access;
    for (unsigned i = 0; i < sizeof(Vector) / bytes; ++i) {
        reinterpret_cast<Access*>(to)[i] = reinterpret_cast<const Access*>(from)[i];
    }
}

}  // namespace lk

// float4{1, 2, 3, 4} gives all that there is to give, and copying by the compiler's own constructor is what we want.
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"
#pragma GCC diagnostic ignored "-Wdeprecated-copy"

// gcc splits a copied struct into its members, and a float4 would be recorded as four loads. It leaves a struct alone that has
// a volatile member: this one has no size and stands in a union, so that the type stays trivial, literal and an aggregate.
// The assignment is written out because out[i] = {a, b, c, d} would else be four stores.
#define LK_WHOLE(Vector, copy_members)                        \
    constexpr Vector& operator=(const Vector& from) {         \
        if (__builtin_is_constant_evaluated()) {              \
            copy_members;                                     \
        } else {                                              \
            lk::copy_whole(this, &from);                      \
        }                                                     \
        return *this;                                         \
    }                                                         \
    union {                                                   \
        char lk_plain_[0];                                    \
        volatile char lk_whole_[0];                           \
    };
#else
#define LK_WHOLE(Vector, copy_members)
#endif

#define LK_VECTORS(Scalar, Name, alignment2, alignment4)                                    \
    struct Name##1 {                                                                        \
        Scalar x;                                                                           \
    };                                                                                      \
    struct alignas(alignment2) Name##2 {                                                    \
        Scalar x, y;                                                                        \
        LK_WHOLE(Name##2, (x = from.x, y = from.y))                                         \
    };                                                                                      \
    struct Name##3 {                                                                        \
        Scalar x, y, z;                                                                     \
    };                                                                                      \
    struct alignas(alignment4) Name##4 {                                                    \
        Scalar x, y, z, w;                                                                  \
        LK_WHOLE(Name##4, (x = from.x, y = from.y, z = from.z, w = from.w))                 \
    };                                                                                      \
    constexpr LK_INLINE Name##1 make_##Name##1(Scalar x) { return {x}; }                    \
    constexpr LK_INLINE Name##2 make_##Name##2(Scalar x, Scalar y) { return {x, y}; }       \
    constexpr LK_INLINE Name##3 make_##Name##3(Scalar x, Scalar y, Scalar z) { return {x, y, z}; } \
    constexpr LK_INLINE Name##4 make_##Name##4(Scalar x, Scalar y, Scalar z, Scalar w) { return {x, y, z, w}; }

LK_VECTORS(signed char, char, 2, 4)
LK_VECTORS(unsigned char, uchar, 2, 4)
LK_VECTORS(short, short, 4, 8)
LK_VECTORS(unsigned short, ushort, 4, 8)
LK_VECTORS(int, int, 8, 16)
LK_VECTORS(unsigned int, uint, 8, 16)
LK_VECTORS(long, long, 16, 16)
LK_VECTORS(unsigned long, ulong, 16, 16)
LK_VECTORS(long long, longlong, 16, 16)
LK_VECTORS(unsigned long long, ulonglong, 16, 16)
LK_VECTORS(float, float, 8, 16)
LK_VECTORS(double, double, 16, 16)

struct dim3 {
    unsigned int x, y, z;
    constexpr dim3(unsigned int x = 1, unsigned int y = 1, unsigned int z = 1) : x(x), y(y), z(z) {}
    constexpr dim3(uint3 from) : x(from.x), y(from.y), z(from.z) {}
    constexpr operator uint3() const { return {x, y, z}; }
};
