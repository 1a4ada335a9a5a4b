// arithmetic.h: PTX's arithmetic, by the definitions of the PTX ISA. Denormals are kept where .ftz would flush them.
#pragma once

#include "lk/bits.h"
#include "lk/minmax.h"
#include "lk/ptx/registers.h"

namespace lk {
namespace ptx {

template <class Number>
constexpr bool is_pair = std::is_same_v<Number, __half2> || std::is_same_v<Number, __nv_bfloat162>;
template <class Number>
constexpr bool is_16 = std::is_same_v<Number, __half> || std::is_same_v<Number, __nv_bfloat16>;
template <class Number>
constexpr bool is_real = std::is_floating_point_v<Number> || is_16<Number>;

// clang-format off
#define LK_PTX_BINARY(name, formula) template <class T> LK_INLINE T name(T a, T b) { return T(formula); }
LK_PTX_BINARY(add_, a + b)
LK_PTX_BINARY(sub_, a - b)
LK_PTX_BINARY(mul_, a * b)
LK_PTX_BINARY(div_, a / b)
LK_PTX_BINARY(rem_, a % b)
LK_PTX_BINARY(and_, a & b)
LK_PTX_BINARY(or_, a | b)
LK_PTX_BINARY(xor_, a ^ b)
#undef LK_PTX_BINARY
// clang-format on

// A NaN gives way to a number; -0 is less than +0.
template <bool larger, class T>
LK_INLINE T extreme(T a, T b) {
    if constexpr (is_pair<T>) {
        return T{extreme<larger>(a.x, b.x), extreme<larger>(a.y, b.y)};
    } else {
        if (a != a) return b;
        if (b != b) return a;
        if constexpr (is_real<T>) {
            if (a == b) return __builtin_signbit(float(a)) == larger ? b : a;
        }
        return (a > b) == larger ? a : b;
    }
}
template <class T>
LK_INLINE T min_(T a, T b) {
    return extreme<false>(a, b);
}
template <class T>
LK_INLINE T max_(T a, T b) {
    return extreme<true>(a, b);
}
template <class T>
LK_INLINE T nan_min_(T a, T b) {
    return a != a || b != b ? T(a + b) : min_(a, b);
}
template <class T>
LK_INLINE T nan_max_(T a, T b) {
    return a != a || b != b ? T(a + b) : max_(a, b);
}

// A shift by the width or more leaves zeros, or the sign.
template <class T>
LK_INLINE T shl_(T a, unsigned bits) {
    return bits >= 8 * sizeof(T) ? T(0) : T(std::make_unsigned_t<T>(a) << bits);
}
template <class T>
LK_INLINE T shr_(T a, unsigned bits) {
    constexpr unsigned most = 8 * sizeof(T) - 1;
    return bits > most ? (a < T(0) ? T(-1) : T(0)) : T(a >> bits);
}

template <class T>
LK_INLINE T fma_(T a, T b, T c) {
    if constexpr (is_pair<T>) {
        return T{lk::fused(a.x, b.x, c.x), lk::fused(a.y, b.y, c.y)};
    } else if constexpr (is_16<T>) {
        return lk::fused(a, b, c);
    } else if constexpr (std::is_same_v<T, float>) {
        return __builtin_fmaf(a, b, c);
    } else {
        return __builtin_fma(a, b, c);
    }
}

// Of integers: the lower half of the product, the upper half, or all of it.
template <class T>
using Wider = std::conditional_t<
    sizeof(T) == 2, std::conditional_t<std::is_signed_v<T>, int, unsigned>,
    std::conditional_t<sizeof(T) == 4, std::conditional_t<std::is_signed_v<T>, long long, unsigned long long>,
                       std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>>>;
template <class T>
LK_INLINE T mul_lo(T a, T b) {
    return T(Wider<T>(a) * Wider<T>(b));
}
template <class T>
LK_INLINE T mul_hi(T a, T b) {
    return T(Wider<T>(a) * Wider<T>(b) >> 8 * sizeof(T));
}
template <class T>
LK_INLINE Wider<T> mul_wide(T a, T b) {
    return Wider<T>(a) * Wider<T>(b);
}

// Additions and subtractions of one number of many words; carry is 1 where one more has to be added or taken away.
template <class T>
LK_INLINE T add_carry(T a, T b, unsigned& carry) {
    using Bits = std::make_unsigned_t<T>;
    carry = Bits(Bits(a) + Bits(b)) < Bits(a);
    return T(Bits(a) + Bits(b));
}
template <class T>
LK_INLINE T sub_carry(T a, T b, unsigned& carry) {
    using Bits = std::make_unsigned_t<T>;
    carry = Bits(a) < Bits(b);
    return T(Bits(a) - Bits(b));
}
template <class T>
LK_INLINE T add_carried(T a, T b, unsigned& carry) {
    using Bits = std::make_unsigned_t<T>;
    const unsigned __int128 sum = (unsigned __int128)Bits(a) + Bits(b) + carry;
    carry = unsigned(sum >> 8 * sizeof(T)) & 1;
    return T(sum);
}
template <class T>
LK_INLINE T sub_carried(T a, T b, unsigned& carry) {
    using Bits = std::make_unsigned_t<T>;
    const unsigned __int128 difference = (unsigned __int128)Bits(a) - Bits(b) - carry;
    carry = unsigned(difference >> 8 * sizeof(T)) & 1;
    return T(difference);
}

template <class T>
LK_INLINE T abs_(T a) {
    if constexpr (is_pair<T>) {
        return get<T>(get<unsigned>(a) & 0x7fff7fffu);
    } else if constexpr (is_16<T>) {
        return get<T>(static_cast<unsigned short>(a.lk_bits & 0x7fff));
    } else if constexpr (std::is_floating_point_v<T>) {
        return __builtin_fabs(a);
    } else {
        return a < 0 ? T(-a) : a;
    }
}
template <class T>
LK_INLINE T neg_(T a) {
    return T(-a);
}
template <class T>
LK_INLINE T not_(T a) {
    return std::is_same_v<T, bool> ? T(!a) : T(~a);
}
template <class T>
LK_INLINE T cnot_(T a) {
    return a == 0;
}
template <class T>
LK_INLINE T copysign_(T sign, T size) {
    return T(__builtin_copysign(size, sign));
}

// The approximations of a GPU err in the last places; here the results are the nearest ones.
template <class T, class Function>
LK_INLINE T each(T a, Function function) {
    if constexpr (is_pair<T>) {
        return T{decltype(a.x)(function(float(a.x))), decltype(a.x)(function(float(a.y)))};
    } else if constexpr (is_16<T>) {
        return T(function(float(a)));
    } else {
        return T(function(a));
    }
}
// clang-format off
#define LK_PTX_FUNCTION(name, formula) \
    template <class T> LK_INLINE T name##_(T a) { return each(a, [](auto x) LK_UNRECORDED { return formula; }); }
LK_PTX_FUNCTION(sqrt, std::sqrt(x))
LK_PTX_FUNCTION(rsqrt, 1.0 / std::sqrt(double(x)))
LK_PTX_FUNCTION(rcp, decltype(x)(1) / x)
LK_PTX_FUNCTION(sin, std::sin(x))
LK_PTX_FUNCTION(cos, std::cos(x))
LK_PTX_FUNCTION(ex2, std::exp2(x))
LK_PTX_FUNCTION(lg2, std::log2(x))
LK_PTX_FUNCTION(tanh, std::tanh(x))
#undef LK_PTX_FUNCTION
// clang-format on

template <class T>
LK_INLINE unsigned popc_(T a) {
    return unsigned(__builtin_popcountll(std::make_unsigned_t<T>(a)));
}
template <class T>
LK_INLINE unsigned clz_(T a) {
    return unsigned(sizeof(T) == 8 ? __clzll((long long)a) : __clz(int(a)));
}
template <class T>
LK_INLINE T brev_(T a) {
    return sizeof(T) == 8 ? T(__brevll(a)) : T(__brev(unsigned(a)));
}

// The position of the highest bit that differs from the sign; all ones where there is none.
template <class T>
LK_INLINE unsigned bfind_(T a) {
    const T bits = a < T(0) ? T(~a) : a;
    return bits == 0 ? ~0u : unsigned(8 * sizeof(T) - 1) - clz_(bits);
}

template <class T>
LK_INLINE unsigned fns_(unsigned mask, unsigned base, int n) {
    return __fns(mask, base, n);
}

template <class T>
LK_INLINE T bfe_(T a, unsigned position, unsigned length) {
    constexpr unsigned most = 8 * sizeof(T) - 1;
    const unsigned from = position & 0xff, count = length & 0xff;
    const unsigned last = from + count - 1 < most ? from + count - 1 : most;
    const bool sign = std::is_signed_v<T> && count != 0 && (a >> last & 1);
    T field = 0;
    for (unsigned i = 0; i <= most; ++i) {
        const bool bit = i < count && from + i <= most ? bool(a >> (from + i) & 1) : sign;
        field |= T(T(bit) << i);
    }
    return field;
}

template <class T>
LK_INLINE T bfi_(T field, T into, unsigned position, unsigned length) {
    const unsigned from = position & 0xff, count = length & 0xff;
    for (unsigned i = 0; i < count && from + i < 8 * sizeof(T); ++i) {
        into = (into & ~(T(1) << (from + i))) | (T(field >> i & 1) << (from + i));
    }
    return into;
}

// The table's bit for each combination of the three bits: a is worth 4, b 2, c 1.
template <class T>
LK_INLINE unsigned lop3_(unsigned a, unsigned b, unsigned c, unsigned table) {
    unsigned made = 0;
    for (unsigned i = 0; i < 8; ++i) {
        if (table >> i & 1) {
            made |= (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? c : ~c);
        }
    }
    return made;
}

template <class T>
LK_INLINE T sad_(T a, T b, T c) {
    return T(c + (a < b ? b - a : a - b));
}

template <class T>
LK_INLINE bool unordered(T a, T b) {
    return a != a || b != b;
}

template <class T>
LK_INLINE T saturated(T a) {
    if constexpr (std::is_integral_v<T>) {
        return a;
    } else {
        return float(a) > 0.0f ? (float(a) < 1.0f ? a : T(1.0f)) : T(0.0f);
    }
}

// A whole number as a smaller type: the nearest that it holds, and 0 for what is no number.
template <class To, class Wide, class Number>
LK_INLINE To to_small(Wide whole, Number from) {
    constexpr To least = std::numeric_limits<To>::min(), most = std::numeric_limits<To>::max();
    if (from != from && sizeof(To) < 8) return 0;
    return whole < Wide(least) ? least : whole > Wide(most) ? most : To(whole);
}

// cvt: numbers to numbers, and two floats to a pair whose first operand is the upper half.
template <class To, class From>
LK_INLINE To convert(From from, int mode) {
    if constexpr (std::is_integral_v<To>) {
        if constexpr (std::is_integral_v<From>) {
            return To(from);
        } else if constexpr (std::is_same_v<From, double>) {
            return to_small<To>(lk::to_saturated<std::conditional_t<std::is_signed_v<To>, long long, unsigned long long>>(from, mode), from);
        } else {
            return to_small<To>(lk::to_saturated<std::conditional_t<std::is_signed_v<To>, long long, unsigned long long>>(float(from), mode), float(from));
        }
    } else if constexpr (is_16<To>) {
        if constexpr (std::is_integral_v<From>) {
            return lk::from_integer<To>(from, mode);
        } else {
            return mode == FE_TONEAREST ? To(double(from)) : lk::directed<To>(double(from), mode);
        }
    } else if constexpr (std::is_floating_point_v<From> && std::is_same_v<To, From>) {
        return lk::to_integer(from, mode);
    } else if constexpr (is_16<From>) {
        return To(float(from));
    } else {
        return mode == FE_TONEAREST ? To(from) : lk::narrowed<To>(mode, from);
    }
}

template <class Pair>
LK_INLINE Pair convert(float upper, float lower, int mode) {
    return Pair{convert<decltype(Pair::x)>(lower, mode), convert<decltype(Pair::x)>(upper, mode)};
}

LK_INLINE unsigned to_tf32(float value, bool to_nearest_away) {
    const unsigned bits = __float_as_uint(value);
    const bool is_finite = (bits & 0x7f800000u) != 0x7f800000u;
    const unsigned added = to_nearest_away ? 0x1000u : 0xfffu + (bits >> 13 & 1);
    return (is_finite ? bits + added : bits) & 0xffffe000u;
}

}  // namespace ptx
}  // namespace lk
