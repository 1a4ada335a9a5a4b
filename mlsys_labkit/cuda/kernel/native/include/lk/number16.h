// number16.h: what half and bfloat16 have in common, once for each type.
//
// Included with LK_NUMBER and LK_PAIR (the types), LK_RAW and LK_RAW_PAIR (their bits alone) and LK_OF_KIND, which gives the
// names of two functions, bits (of a float or a double) and value (a float, of bits), and of the namespace functions.
//
// A sum, difference, product or quotient of two such numbers, rounded to float first, rounds on to the right value, since
// float has more than twice their digits. A fused multiply-add goes through double.

struct LK_RAW {
    unsigned short x;
};

struct alignas(4) LK_RAW_PAIR {
    unsigned short x, y;
};

struct LK_NUMBER {
    unsigned short lk_bits;

    LK_NUMBER() = default;
    constexpr LK_NUMBER(LK_RAW raw) : lk_bits(raw.x) {}
    // clang-format off
    LK_NUMBER(float value) : lk_bits(lk::LK_OF_KIND(bits)(value)) {}
    LK_NUMBER(double value) : lk_bits(lk::LK_OF_KIND(bits)(value)) {}
    LK_NUMBER(short value) : LK_NUMBER(double(value)) {}
    LK_NUMBER(unsigned short value) : LK_NUMBER(double(value)) {}
    LK_NUMBER(int value) : LK_NUMBER(double(value)) {}
    LK_NUMBER(unsigned int value) : LK_NUMBER(double(value)) {}
    LK_NUMBER(long value) : LK_NUMBER(double(value)) {}
    LK_NUMBER(unsigned long value) : LK_NUMBER(double(value)) {}
    LK_NUMBER(long long value) : LK_NUMBER(double(value)) {}
    LK_NUMBER(unsigned long long value) : LK_NUMBER(double(value)) {}

    operator float() const { return lk::LK_OF_KIND(value)(lk_bits); }
    operator LK_RAW() const { return {lk_bits}; }
    operator bool() const { return (lk_bits & 0x7fff) != 0; }
    operator char() const { return char(float(*this)); }
    operator signed char() const { return static_cast<signed char>(float(*this)); }
    operator unsigned char() const { return static_cast<unsigned char>(float(*this)); }
    operator short() const { return short(float(*this)); }
    operator unsigned short() const { return static_cast<unsigned short>(float(*this)); }
    operator int() const { return int(float(*this)); }
    operator unsigned int() const { return unsigned(float(*this)); }
    operator long() const { return long(float(*this)); }
    operator unsigned long() const { return static_cast<unsigned long>(float(*this)); }
    operator long long() const { return static_cast<long long>(float(*this)); }
    operator unsigned long long() const { return static_cast<unsigned long long>(float(*this)); }
    // clang-format on

    template <class Number, class = typename std::enable_if<std::is_arithmetic<Number>::value>::type>
    LK_NUMBER& operator=(Number value) {
        return *this = LK_NUMBER(value);
    }
};

struct alignas(4) LK_PAIR {
    LK_NUMBER x, y;

    LK_PAIR() = default;
    LK_PAIR(const LK_NUMBER& low, const LK_NUMBER& high) : x(low), y(high) {}
    LK_PAIR(const LK_RAW_PAIR& raw) : x(LK_RAW{raw.x}), y(LK_RAW{raw.y}) {}
    operator LK_RAW_PAIR() const { return {x.lk_bits, y.lk_bits}; }
    LK_WHOLE
};

// Operators stand where argument-dependent lookup finds them. Pairs come as values, so that each is one load.
// clang-format off
#define LK_ARITHMETIC(op) \
    LK_INLINE LK_NUMBER operator op(const LK_NUMBER& a, const LK_NUMBER& b) { return LK_NUMBER(float(a) op float(b)); } \
    LK_INLINE LK_NUMBER& operator op##=(LK_NUMBER& a, const LK_NUMBER& b) { return a = a op b; } \
    LK_INLINE LK_PAIR operator op(LK_PAIR a, LK_PAIR b) { return {a.x op b.x, a.y op b.y}; } \
    LK_INLINE LK_PAIR& operator op##=(LK_PAIR& a, LK_PAIR b) { return a = a op b; }
#define LK_ORDER(op) \
    LK_INLINE bool operator op(const LK_NUMBER& a, const LK_NUMBER& b) { return float(a) op float(b); } \
    LK_INLINE bool operator op(LK_PAIR a, LK_PAIR b) { return a.x op b.x && a.y op b.y; }

LK_ARITHMETIC(+)
LK_ARITHMETIC(-)
LK_ARITHMETIC(*)
LK_ARITHMETIC(/)
LK_ORDER(==)
LK_ORDER(!=)
LK_ORDER(<)
LK_ORDER(>)
LK_ORDER(<=)
LK_ORDER(>=)
LK_INLINE LK_NUMBER operator+(const LK_NUMBER& a) { return a; }
LK_INLINE LK_NUMBER operator-(const LK_NUMBER& a) { LK_NUMBER r = a; r.lk_bits ^= 0x8000; return r; }
LK_INLINE LK_NUMBER& operator++(LK_NUMBER& a) { return a = a + LK_NUMBER(1.0f); }
LK_INLINE LK_NUMBER& operator--(LK_NUMBER& a) { return a = a - LK_NUMBER(1.0f); }
LK_INLINE LK_NUMBER operator++(LK_NUMBER& a, int) { LK_NUMBER old = a; ++a; return old; }
LK_INLINE LK_NUMBER operator--(LK_NUMBER& a, int) { LK_NUMBER old = a; --a; return old; }
LK_INLINE LK_PAIR operator+(LK_PAIR a) { return a; }
LK_INLINE LK_PAIR operator-(LK_PAIR a) { return {-a.x, -a.y}; }

namespace lk {

template <> struct AddsAtomically<LK_NUMBER> { static constexpr bool value = true; };
template <> struct AddsAtomically<LK_PAIR> { static constexpr bool value = true; };

LK_INLINE LK_NUMBER clamp01(const LK_NUMBER& a) { return float(a) > 0.0f ? (float(a) < 1.0f ? a : LK_NUMBER(1.0f)) : LK_NUMBER(0.0f); }
LK_INLINE LK_NUMBER relu(const LK_NUMBER& a) { return float(a) > 0.0f || float(a) != float(a) ? a : LK_NUMBER(0.0f); }
LK_INLINE LK_NUMBER fused(const LK_NUMBER& a, const LK_NUMBER& b, const LK_NUMBER& c) { return LK_NUMBER(double(float(a)) * double(float(b)) + double(float(c))); }

LK_INLINE LK_NUMBER larger(const LK_NUMBER& a, const LK_NUMBER& b) {
    if (float(a) != float(a)) return b;
    if (float(b) != float(b)) return a;
    return float(a) > float(b) || (float(a) == float(b) && !(a.lk_bits & 0x8000)) ? a : b;
}
LK_INLINE LK_NUMBER smaller(const LK_NUMBER& a, const LK_NUMBER& b) {
    if (float(a) != float(a)) return b;
    if (float(b) != float(b)) return a;
    return float(a) < float(b) || (float(a) == float(b) && (a.lk_bits & 0x8000)) ? a : b;
}

namespace LK_OF_KIND(functions) {

LK_INLINE LK_NUMBER __hadd(LK_NUMBER a, LK_NUMBER b) { return a + b; }
LK_INLINE LK_NUMBER __hsub(LK_NUMBER a, LK_NUMBER b) { return a - b; }
LK_INLINE LK_NUMBER __hmul(LK_NUMBER a, LK_NUMBER b) { return a * b; }
LK_INLINE LK_NUMBER __hdiv(LK_NUMBER a, LK_NUMBER b) { return a / b; }
LK_INLINE LK_NUMBER __hadd_rn(LK_NUMBER a, LK_NUMBER b) { return a + b; }
LK_INLINE LK_NUMBER __hsub_rn(LK_NUMBER a, LK_NUMBER b) { return a - b; }
LK_INLINE LK_NUMBER __hmul_rn(LK_NUMBER a, LK_NUMBER b) { return a * b; }
LK_INLINE LK_NUMBER __hadd_sat(LK_NUMBER a, LK_NUMBER b) { return clamp01(a + b); }
LK_INLINE LK_NUMBER __hsub_sat(LK_NUMBER a, LK_NUMBER b) { return clamp01(a - b); }
LK_INLINE LK_NUMBER __hmul_sat(LK_NUMBER a, LK_NUMBER b) { return clamp01(a * b); }
LK_INLINE LK_NUMBER __hfma(LK_NUMBER a, LK_NUMBER b, LK_NUMBER c) { return fused(a, b, c); }
LK_INLINE LK_NUMBER __hfma_sat(LK_NUMBER a, LK_NUMBER b, LK_NUMBER c) { return clamp01(fused(a, b, c)); }
LK_INLINE LK_NUMBER __hfma_relu(LK_NUMBER a, LK_NUMBER b, LK_NUMBER c) { return relu(fused(a, b, c)); }
LK_INLINE LK_NUMBER __hneg(LK_NUMBER a) { return -a; }
LK_INLINE LK_NUMBER __habs(LK_NUMBER a) { a.lk_bits &= 0x7fff; return a; }
LK_INLINE LK_NUMBER __hmax(LK_NUMBER a, LK_NUMBER b) { return larger(a, b); }
LK_INLINE LK_NUMBER __hmin(LK_NUMBER a, LK_NUMBER b) { return smaller(a, b); }
LK_INLINE LK_NUMBER __hmax_nan(LK_NUMBER a, LK_NUMBER b) { return float(a) != float(a) || float(b) != float(b) ? LK_NUMBER(NAN) : larger(a, b); }
LK_INLINE LK_NUMBER __hmin_nan(LK_NUMBER a, LK_NUMBER b) { return float(a) != float(a) || float(b) != float(b) ? LK_NUMBER(NAN) : smaller(a, b); }

LK_INLINE bool __hisnan(LK_NUMBER a) { return float(a) != float(a); }
LK_INLINE int __hisinf(LK_NUMBER a) { return float(a) == INFINITY ? 1 : float(a) == -INFINITY ? -1 : 0; }
LK_INLINE bool __heq(LK_NUMBER a, LK_NUMBER b) { return a == b; }
LK_INLINE bool __hne(LK_NUMBER a, LK_NUMBER b) { return float(a) < float(b) || float(a) > float(b); }
LK_INLINE bool __hlt(LK_NUMBER a, LK_NUMBER b) { return a < b; }
LK_INLINE bool __hgt(LK_NUMBER a, LK_NUMBER b) { return a > b; }
LK_INLINE bool __hle(LK_NUMBER a, LK_NUMBER b) { return a <= b; }
LK_INLINE bool __hge(LK_NUMBER a, LK_NUMBER b) { return a >= b; }
LK_INLINE bool __hequ(LK_NUMBER a, LK_NUMBER b) { return !__hne(a, b); }
LK_INLINE bool __hneu(LK_NUMBER a, LK_NUMBER b) { return !(a == b); }
LK_INLINE bool __hltu(LK_NUMBER a, LK_NUMBER b) { return !(a >= b); }
LK_INLINE bool __hgtu(LK_NUMBER a, LK_NUMBER b) { return !(a <= b); }
LK_INLINE bool __hleu(LK_NUMBER a, LK_NUMBER b) { return !(a > b); }
LK_INLINE bool __hgeu(LK_NUMBER a, LK_NUMBER b) { return !(a < b); }
// clang-format on

// The same for pairs: member by member; comparisons as numbers 1 and 0, as masks, and as one bool for both.
#define LK_PAIRWISE1(name, member) \
    LK_INLINE LK_PAIR name(LK_PAIR a) { return {member(a.x), member(a.y)}; }
#define LK_PAIRWISE2(name, member) \
    LK_INLINE LK_PAIR name(LK_PAIR a, LK_PAIR b) { return {member(a.x, b.x), member(a.y, b.y)}; }
#define LK_PAIRWISE3(name, member) \
    LK_INLINE LK_PAIR name(LK_PAIR a, LK_PAIR b, LK_PAIR c) { return {member(a.x, b.x, c.x), member(a.y, b.y, c.y)}; }
#define LK_COMPARISON(order)                                                                                           \
    LK_INLINE LK_PAIR __h##order##2(LK_PAIR a, LK_PAIR b) {                                                            \
        return {LK_NUMBER(__h##order(a.x, b.x) ? 1.0f : 0.0f), LK_NUMBER(__h##order(a.y, b.y) ? 1.0f : 0.0f)};         \
    }                                                                                                                  \
    LK_INLINE unsigned __h##order##2_mask(LK_PAIR a, LK_PAIR b) {                                                      \
        return (__h##order(a.x, b.x) ? 0xffffu : 0u) | (__h##order(a.y, b.y) ? 0xffff0000u : 0u);                      \
    }                                                                                                                  \
    LK_INLINE bool __hb##order##2(LK_PAIR a, LK_PAIR b) { return __h##order(a.x, b.x) && __h##order(a.y, b.y); }

LK_PAIRWISE2(__hadd2, __hadd)
LK_PAIRWISE2(__hsub2, __hsub)
LK_PAIRWISE2(__hmul2, __hmul)
LK_PAIRWISE2(__h2div, __hdiv)
LK_PAIRWISE2(__hadd2_rn, __hadd)
LK_PAIRWISE2(__hsub2_rn, __hsub)
LK_PAIRWISE2(__hmul2_rn, __hmul)
LK_PAIRWISE2(__hadd2_sat, __hadd_sat)
LK_PAIRWISE2(__hsub2_sat, __hsub_sat)
LK_PAIRWISE2(__hmul2_sat, __hmul_sat)
LK_PAIRWISE3(__hfma2, __hfma)
LK_PAIRWISE3(__hfma2_sat, __hfma_sat)
LK_PAIRWISE3(__hfma2_relu, __hfma_relu)
LK_PAIRWISE1(__hneg2, __hneg)
LK_PAIRWISE1(__habs2, __habs)
LK_PAIRWISE2(__hmax2, __hmax)
LK_PAIRWISE2(__hmin2, __hmin)
LK_PAIRWISE2(__hmax2_nan, __hmax_nan)
LK_PAIRWISE2(__hmin2_nan, __hmin_nan)
LK_COMPARISON(eq)
LK_COMPARISON(ne)
LK_COMPARISON(lt)
LK_COMPARISON(gt)
LK_COMPARISON(le)
LK_COMPARISON(ge)
LK_COMPARISON(equ)
LK_COMPARISON(neu)
LK_COMPARISON(ltu)
LK_COMPARISON(gtu)
LK_COMPARISON(leu)
LK_COMPARISON(geu)

LK_INLINE LK_PAIR __hisnan2(LK_PAIR a) {
    return {LK_NUMBER(__hisnan(a.x) ? 1.0f : 0.0f), LK_NUMBER(__hisnan(a.y) ? 1.0f : 0.0f)};
}

LK_INLINE LK_PAIR __hcmadd(LK_PAIR a, LK_PAIR b, LK_PAIR c) {
    return {__hfma(-a.y, b.y, __hfma(a.x, b.x, c.x)), __hfma(a.y, b.x, __hfma(a.x, b.y, c.y))};
}

// Functions of one variable, rounded once from double: at least as near as the GPU's own.
#define LK_FUNCTION(name, formula)                                   \
    LK_INLINE LK_NUMBER h##name(LK_NUMBER a) {                       \
        const double x = double(float(a));                           \
        return LK_NUMBER(double(formula));                           \
    }                                                                \
    LK_INLINE LK_PAIR h2##name(LK_PAIR a) { return {h##name(a.x), h##name(a.y)}; }

LK_FUNCTION(exp, ::exp(x))
LK_FUNCTION(exp2, ::exp2(x))
LK_FUNCTION(exp10, ::pow(10.0, x))
LK_FUNCTION(log, ::log(x))
LK_FUNCTION(log2, ::log2(x))
LK_FUNCTION(log10, ::log10(x))
LK_FUNCTION(sin, ::sin(x))
LK_FUNCTION(cos, ::cos(x))
LK_FUNCTION(tanh, ::tanh(x))
LK_FUNCTION(tanh_approx, ::tanh(x))
LK_FUNCTION(sqrt, ::sqrt(x))
LK_FUNCTION(rsqrt, 1.0 / ::sqrt(x))
LK_FUNCTION(rcp, 1.0 / x)
LK_FUNCTION(floor, ::floor(x))
LK_FUNCTION(ceil, ::ceil(x))
LK_FUNCTION(trunc, ::trunc(x))
LK_FUNCTION(rint, ::nearbyint(x))

#undef LK_ARITHMETIC
#undef LK_ORDER
#undef LK_PAIRWISE1
#undef LK_PAIRWISE2
#undef LK_PAIRWISE3
#undef LK_COMPARISON
#undef LK_FUNCTION

LK_SHUFFLES(LK_NUMBER)
LK_SHUFFLES(LK_PAIR)

}  // namespace LK_OF_KIND(functions)
}  // namespace lk

#undef LK_NUMBER
#undef LK_PAIR
#undef LK_RAW
#undef LK_RAW_PAIR
#undef LK_OF_KIND
