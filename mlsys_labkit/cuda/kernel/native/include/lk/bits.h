// bits.h: CUDA's intrinsics on integers: counting, reversing, permuting, wide products, dot products.
#pragma once

#include "lk/qualifiers.h"
#include "lk/vectors.h"

// clang-format off
LK_INLINE int __popc(unsigned x) { return __builtin_popcount(x); }
LK_INLINE int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
LK_INLINE int __clz(int x) { return x == 0 ? 32 : __builtin_clz(unsigned(x)); }
LK_INLINE int __clzll(long long x) { return x == 0 ? 64 : __builtin_clzll(static_cast<unsigned long long>(x)); }
LK_INLINE int __ffs(int x) { return __builtin_ffs(x); }
LK_INLINE int __ffsll(long long x) { return __builtin_ffsll(x); }

LK_INLINE int __mul24(int a, int b) { return int(unsigned(a << 8 >> 8) * unsigned(b << 8 >> 8)); }
LK_INLINE unsigned __umul24(unsigned a, unsigned b) { return (a & 0xffffff) * (b & 0xffffff); }
LK_INLINE int __mulhi(int a, int b) { return int((long long)a * b >> 32); }
LK_INLINE unsigned __umulhi(unsigned a, unsigned b) { return unsigned((unsigned long long)a * b >> 32); }
LK_INLINE long long __mul64hi(long long a, long long b) { return (long long)((__int128)a * b >> 64); }
LK_INLINE unsigned long long __umul64hi(unsigned long long a, unsigned long long b) { return (unsigned long long)((unsigned __int128)a * b >> 64); }
LK_INLINE unsigned __sad(int a, int b, unsigned c) { return c + unsigned(a < b ? (long long)b - a : (long long)a - b); }
LK_INLINE unsigned __usad(unsigned a, unsigned b, unsigned c) { return c + (a < b ? b - a : a - b); }
LK_INLINE int __hadd(int a, int b) { return int(((long long)a + b) >> 1); }
LK_INLINE int __rhadd(int a, int b) { return int(((long long)a + b + 1) >> 1); }
LK_INLINE unsigned __uhadd(unsigned a, unsigned b) { return unsigned(((unsigned long long)a + b) >> 1); }
LK_INLINE unsigned __urhadd(unsigned a, unsigned b) { return unsigned(((unsigned long long)a + b + 1) >> 1); }

// The two words side by side, shifted; the _l and _r forms take the shift modulo 32, the c forms at most 32.
LK_INLINE unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) { return unsigned((((unsigned long long)high << 32 | low) << (shift & 31)) >> 32); }
LK_INLINE unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) { return unsigned(((unsigned long long)high << 32 | low) >> (shift & 31)); }
LK_INLINE unsigned __funnelshift_lc(unsigned low, unsigned high, unsigned shift) { return shift >= 32 ? low : __funnelshift_l(low, high, shift); }
LK_INLINE unsigned __funnelshift_rc(unsigned low, unsigned high, unsigned shift) { return shift >= 32 ? high : __funnelshift_r(low, high, shift); }
// clang-format on

LK_INLINE unsigned __brev(unsigned x) {
    x = (x >> 1 & 0x55555555u) | (x & 0x55555555u) << 1;
    x = (x >> 2 & 0x33333333u) | (x & 0x33333333u) << 2;
    x = (x >> 4 & 0x0f0f0f0fu) | (x & 0x0f0f0f0fu) << 4;
    return __builtin_bswap32(x);
}

LK_INLINE unsigned long long __brevll(unsigned long long x) {
    return (unsigned long long)__brev(unsigned(x)) << 32 | __brev(unsigned(x >> 32));
}

// Four bytes chosen from the eight of a (0 to 3) and b (4 to 7); a selector's top bit spreads that byte's sign.
LK_INLINE unsigned __byte_perm(unsigned a, unsigned b, unsigned selectors) {
    const unsigned long long bytes = (unsigned long long)b << 32 | a;
    unsigned made = 0;
    for (int i = 0; i < 4; ++i) {
        const unsigned selector = selectors >> 4 * i & 15;
        unsigned byte = unsigned(bytes >> 8 * (selector & 7)) & 0xff;
        if (selector & 8) {
            byte = byte & 0x80 ? 0xff : 0;
        }
        made |= byte << 8 * i;
    }
    return made;
}

// The position of the n-th set bit (n > 0), counted upwards from `base`, or downwards for n < 0; -1 where there is none.
LK_INLINE unsigned __fns(unsigned mask, unsigned base, int n) {
    if (n == 0) {
        return mask >> base & 1 ? base : 0xffffffffu;
    }
    const int step = n > 0 ? 1 : -1;
    int left = n > 0 ? n : -n;
    for (int bit = int(base); bit >= 0 && bit < 32; bit += step) {
        left -= mask >> bit & 1;
        if (left == 0) {
            return unsigned(bit);
        }
    }
    return 0xffffffffu;
}

namespace lk {

// The sum of products of `count` numbers packed into words; Small is their type.
template <class Small, class Result>
LK_INLINE auto dot_packed(unsigned a, unsigned b, Result sum) {
    constexpr int bits = 8 * sizeof(Small);
    for (int i = 0; i < 32; i += bits) {
        sum += Result(Small(a >> i)) * Result(Small(b >> i));
    }
    return sum;
}

template <class Word, class Vector>
LK_INLINE auto word_of(Vector vector) {
    static_assert(sizeof(Word) == sizeof(Vector), "a vector of one word");
    Word word;
    __builtin_memcpy(&word, &vector, sizeof word);
    return word;
}

}  // namespace lk

LK_INLINE int __dp4a(int a, int b, int c) { return lk::dot_packed<signed char>(unsigned(a), unsigned(b), c); }
LK_INLINE unsigned __dp4a(unsigned a, unsigned b, unsigned c) { return lk::dot_packed<unsigned char>(a, b, c); }
LK_INLINE int __dp4a(char4 a, char4 b, int c) { return __dp4a(lk::word_of<int>(a), lk::word_of<int>(b), c); }
LK_INLINE unsigned __dp4a(uchar4 a, uchar4 b, unsigned c) {
    return __dp4a(lk::word_of<unsigned>(a), lk::word_of<unsigned>(b), c);
}

// Two 16-bit numbers of a with two bytes of b, the lower or the upper ones.
LK_INLINE int __dp2a_lo(int a, int b, int c) {
    return c + short(a) * static_cast<signed char>(b) + (a >> 16) * static_cast<signed char>(b >> 8);
}
LK_INLINE int __dp2a_hi(int a, int b, int c) { return __dp2a_lo(a, b >> 16, c); }
LK_INLINE unsigned __dp2a_lo(unsigned a, unsigned b, unsigned c) {
    return c + (a & 0xffff) * (b & 0xff) + (a >> 16) * (b >> 8 & 0xff);
}
LK_INLINE unsigned __dp2a_hi(unsigned a, unsigned b, unsigned c) { return __dp2a_lo(a, b >> 16, c); }
LK_INLINE int __dp2a_lo(short2 a, char4 b, int c) { return __dp2a_lo(lk::word_of<int>(a), lk::word_of<int>(b), c); }
LK_INLINE int __dp2a_hi(short2 a, char4 b, int c) { return __dp2a_hi(lk::word_of<int>(a), lk::word_of<int>(b), c); }
LK_INLINE unsigned __dp2a_lo(ushort2 a, uchar4 b, unsigned c) {
    return __dp2a_lo(lk::word_of<unsigned>(a), lk::word_of<unsigned>(b), c);
}
LK_INLINE unsigned __dp2a_hi(ushort2 a, uchar4 b, unsigned c) {
    return __dp2a_hi(lk::word_of<unsigned>(a), lk::word_of<unsigned>(b), c);
}
