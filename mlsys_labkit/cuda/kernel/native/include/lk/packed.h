// packed.h: arithmetic on two 16-bit or four 8-bit numbers in a word, and the minima and maxima of dynamic programming (DPX).
#pragma once

#include "lk/qualifiers.h"

namespace lk {

// Applies an operation on ints to the numbers of two words.
template <class Small, class Operation>
LK_INLINE auto packed_words(unsigned first, unsigned second, Operation operation) {
    constexpr int bits = 8 * sizeof(Small);
    unsigned made = 0;
    for (int i = 0; i < 32; i += bits) {
        const int result = operation(int(Small(first >> i)), int(Small(second >> i)));
        made |= (unsigned(result) & ((1u << bits) - 1)) << i;
    }
    return made;
}

// To the ends of what Small holds.
template <class Small>
constexpr auto clamped(int value) {
    constexpr int bits = 8 * sizeof(Small);
    constexpr int most = Small(-1) < 0 ? (1 << (bits - 1)) - 1 : (1 << bits) - 1;
    constexpr int least = Small(-1) < 0 ? -most - 1 : 0;
    return value > most ? most : value < least ? least : value;
}

}  // namespace lk

#define LK_PACKED(name, Small, formula)                                                          \
    LK_INLINE unsigned name(unsigned first, unsigned second) {                                   \
        return lk::packed_words<Small>(first, second, [](int a, int b) { return int(formula); }); \
    }

#define LK_PACKED_ONE(name, Small, formula)                                                    \
    LK_INLINE unsigned name(unsigned word) {                                                   \
        return lk::packed_words<Small>(word, 0, [](int a, int) { return int(formula); });      \
    }

// All ones (__vcmp) or 1 (__vset) where the order holds.
#define LK_PACKED_ORDER(name, Small, order)          \
    LK_PACKED(__vcmp##name, Small, a order b ? -1 : 0) \
    LK_PACKED(__vset##name, Small, a order b)

// width is how names end: 2 or 4 numbers.
#define LK_PACKED_FAMILY(width, Signed, Unsigned)                                     \
    LK_PACKED(__vadd##width, Unsigned, a + b)                                         \
    LK_PACKED(__vsub##width, Unsigned, a - b)                                         \
    LK_PACKED(__vaddss##width, Signed, lk::clamped<Signed>(a + b))                    \
    LK_PACKED(__vsubss##width, Signed, lk::clamped<Signed>(a - b))                    \
    LK_PACKED(__vaddus##width, Unsigned, lk::clamped<Unsigned>(a + b))                \
    LK_PACKED(__vsubus##width, Unsigned, lk::clamped<Unsigned>(a - b))                \
    LK_PACKED(__vmaxs##width, Signed, a > b ? a : b)                                  \
    LK_PACKED(__vmins##width, Signed, a < b ? a : b)                                  \
    LK_PACKED(__vmaxu##width, Unsigned, a > b ? a : b)                                \
    LK_PACKED(__vminu##width, Unsigned, a < b ? a : b)                                \
    LK_PACKED(__vabsdiffs##width, Signed, a > b ? a - b : b - a)                      \
    LK_PACKED(__vabsdiffu##width, Unsigned, a > b ? a - b : b - a)                    \
    LK_PACKED(__vavgs##width, Signed, (a + b + (a + b >= 0)) >> 1)                    \
    LK_PACKED(__vavgu##width, Unsigned, (a + b + 1) >> 1)                             \
    LK_PACKED(__vhaddu##width, Unsigned, (a + b) >> 1)                                \
    LK_PACKED_ONE(__vneg##width, Signed, -a)                                          \
    LK_PACKED_ONE(__vabs##width, Signed, a < 0 ? -a : a)                              \
    LK_PACKED_ONE(__vnegss##width, Signed, lk::clamped<Signed>(-a))                   \
    LK_PACKED_ONE(__vabsss##width, Signed, lk::clamped<Signed>(a < 0 ? -a : a))       \
    LK_PACKED_ORDER(eq##width, Unsigned, ==)                                          \
    LK_PACKED_ORDER(ne##width, Unsigned, !=)                                          \
    LK_PACKED_ORDER(ges##width, Signed, >=)                                           \
    LK_PACKED_ORDER(gts##width, Signed, >)                                            \
    LK_PACKED_ORDER(les##width, Signed, <=)                                           \
    LK_PACKED_ORDER(lts##width, Signed, <)                                            \
    LK_PACKED_ORDER(geu##width, Unsigned, >=)                                         \
    LK_PACKED_ORDER(gtu##width, Unsigned, >)                                          \
    LK_PACKED_ORDER(leu##width, Unsigned, <=)                                         \
    LK_PACKED_ORDER(ltu##width, Unsigned, <)

LK_PACKED_FAMILY(2, short, unsigned short)
LK_PACKED_FAMILY(4, signed char, unsigned char)

#undef LK_PACKED
#undef LK_PACKED_ONE
#undef LK_PACKED_ORDER
#undef LK_PACKED_FAMILY

namespace lk {

template <class Integer>
LK_INLINE auto largest_of(Integer a, Integer b, Integer c) {
    const Integer ab = a < b ? b : a;
    return ab < c ? c : ab;
}

template <class Integer>
LK_INLINE auto smallest_of(Integer a, Integer b, Integer c) {
    const Integer ab = b < a ? b : a;
    return c < ab ? c : ab;
}

}  // namespace lk

// clang-format off
LK_INLINE int __vimax3_s32(int a, int b, int c) { return lk::largest_of(a, b, c); }
LK_INLINE int __vimin3_s32(int a, int b, int c) { return lk::smallest_of(a, b, c); }
LK_INLINE unsigned __vimax3_u32(unsigned a, unsigned b, unsigned c) { return lk::largest_of(a, b, c); }
LK_INLINE unsigned __vimin3_u32(unsigned a, unsigned b, unsigned c) { return lk::smallest_of(a, b, c); }
LK_INLINE int __vimax_s32_relu(int a, int b) { return lk::largest_of(a, b, 0); }
LK_INLINE int __vimin_s32_relu(int a, int b) { return lk::largest_of(a < b ? a : b, 0, 0); }
LK_INLINE int __vimax3_s32_relu(int a, int b, int c) { return lk::largest_of(lk::largest_of(a, b, c), 0, 0); }
LK_INLINE int __vimin3_s32_relu(int a, int b, int c) { return lk::largest_of(lk::smallest_of(a, b, c), 0, 0); }
LK_INLINE int __viaddmax_s32(int a, int b, int c) { return lk::largest_of(a + b, c, c); }
LK_INLINE int __viaddmin_s32(int a, int b, int c) { return lk::smallest_of(a + b, c, c); }
LK_INLINE unsigned __viaddmax_u32(unsigned a, unsigned b, unsigned c) { return lk::largest_of(a + b, c, c); }
LK_INLINE unsigned __viaddmin_u32(unsigned a, unsigned b, unsigned c) { return lk::smallest_of(a + b, c, c); }
LK_INLINE int __viaddmax_s32_relu(int a, int b, int c) { return lk::largest_of(a + b, c, 0); }
LK_INLINE int __viaddmin_s32_relu(int a, int b, int c) { return lk::largest_of(lk::smallest_of(a + b, c, c), 0, 0); }
// clang-format on
