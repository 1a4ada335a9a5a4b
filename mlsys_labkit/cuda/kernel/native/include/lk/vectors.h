// vectors.h: float4 and its relatives: plain aggregates that are read and written as a whole, in one access.
#pragma once

#include <type_traits>

#include "lk/qualifiers.h"

// float4{1, 2, 3, 4} gives all that there is to give.
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

// gcc splits a copied struct into its members, and a float4 would be recorded as four loads. It leaves a struct alone that has
// a volatile member: this one has no size and stands in a union, so that the type stays trivial, literal and an aggregate.
#ifdef __SANITIZE_THREAD__
#define LK_WHOLE                    \
    union {                         \
        char lk_plain_[0];          \
        volatile char lk_whole_[0]; \
    };
#else
#define LK_WHOLE
#endif

// make_float4 fills a local variable: written in place, out[i] = make_float4(...) would be four stores.
#define LK_VECTORS(Scalar, Name, alignment2, alignment4)                                \
    struct Name##1 {                                                                    \
        Scalar x;                                                                       \
    };                                                                                  \
    struct alignas(alignment2) Name##2 {                                                \
        Scalar x, y;                                                                    \
        LK_WHOLE                                                                        \
    };                                                                                  \
    struct Name##3 {                                                                    \
        Scalar x, y, z;                                                                 \
    };                                                                                  \
    struct alignas(alignment4) Name##4 {                                                \
        Scalar x, y, z, w;                                                              \
        LK_WHOLE                                                                        \
    };                                                                                  \
    LK_INLINE Name##1 make_##Name##1(Scalar x) {                                        \
        Name##1 made{x};                                                                \
        return made;                                                                    \
    }                                                                                   \
    LK_INLINE Name##2 make_##Name##2(Scalar x, Scalar y) {                              \
        Name##2 made{x, y};                                                             \
        return made;                                                                    \
    }                                                                                   \
    LK_INLINE Name##3 make_##Name##3(Scalar x, Scalar y, Scalar z) {                    \
        Name##3 made{x, y, z};                                                          \
        return made;                                                                    \
    }                                                                                   \
    LK_INLINE Name##4 make_##Name##4(Scalar x, Scalar y, Scalar z, Scalar w) {          \
        Name##4 made{x, y, z, w};                                                       \
        return made;                                                                    \
    }

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

namespace lk {

// What out[i] = float4{a, b, c, d} is rewritten with: the value is made first, and then stored as a whole.
template <class Target>
struct Whole {
    using Value = std::remove_reference_t<Target>;
    static LK_INLINE Value of(Value value) { return value; }
};

}  // namespace lk
