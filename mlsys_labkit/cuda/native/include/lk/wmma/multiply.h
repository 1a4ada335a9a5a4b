// multiply.h: D = A B + C on tiles that are spread over a warp. Products are exact, sums are rounded once at their end: a
// tensor core, which rounds in between, is no more accurate.
#pragma once

#include "lk/wmma/transfer.h"

namespace lk {
namespace wmma {

// A tensor core takes the upper 19 bits of a float.
LK_INLINE float cut_to_tf32(float value) {
    unsigned bits;
    __builtin_memcpy(&bits, &value, sizeof bits);
    bits &= 0xffffe000u;
    __builtin_memcpy(&value, &bits, sizeof value);
    return value;
}

template <class Type>
struct Input {
    using Number = float;
    static LK_INLINE float take(const Type& value) { return float(value); }
};
template <>
struct Input<nvcuda::wmma::precision::tf32> {
    using Number = float;
    static LK_INLINE float take(float value) { return cut_to_tf32(value); }
};
template <>
struct Input<double> {
    using Number = double;
    static LK_INLINE double take(double value) { return value; }
};
template <>
struct Input<signed char> {
    using Number = int;
    static LK_INLINE int take(signed char value) { return value; }
};
template <>
struct Input<unsigned char> {
    using Number = int;
    static LK_INLINE int take(unsigned char value) { return value; }
};

template <class Result, class Sum>
LK_INLINE Result finish(Sum sum, bool saturate) {
    if (std::is_same<Result, int>::value) {
        const long long most = saturate ? 0x7fffffffll : sum;
        const long long least = saturate ? -0x80000000ll : sum;
        return Result(sum > most ? most : sum < least ? least : sum);
    }
    return Result(sum);
}

// The profile reads the FLOPs of a call from this name and its first number: of a lane, 0 for integers.
template <int flops, int rows, int columns, int depth, class D, class A, class B, class C>
LK_OPAQUE void tensor_core_multiply(D* results, const A* as, const B* bs, const C* cs, bool saturate) {
    using ATile = Tile<nvcuda::wmma::matrix_a, rows, columns, depth, A>;
    using BTile = Tile<nvcuda::wmma::matrix_b, rows, columns, depth, B>;
    using CTile = Tile<nvcuda::wmma::accumulator, rows, columns, depth, D>;
    using Number = typename Input<A>::Number;
    using Sum = typename std::conditional<std::is_same<Number, int>::value, long long, double>::type;
    struct Part {
        Number a[ATile::elements];
        Number b[BTile::elements];
    };

    Part mine;
    for (int i = 0; i < ATile::elements; ++i) {
        mine.a[i] = Input<A>::take(reinterpret_cast<const typename ATile::Number*>(as)[i]);
    }
    for (int i = 0; i < BTile::elements; ++i) {
        mine.b[i] = Input<B>::take(reinterpret_cast<const typename BTile::Number*>(bs)[i]);
    }
    Part parts[32];
    lk_gather(0xffffffffu, &mine, parts, sizeof mine);

    for (int element = 0; element < CTile::elements; ++element) {
        const Place place = CTile::place(element, int(lk_lane()));
        Sum sum = Sum(cs[element]);
        for (int k = 0; k < depth; ++k) {
            const auto a = ATile::owner(place.row, k);
            const auto b = BTile::owner(k, place.column);
            sum += Sum(parts[a.lane].a[a.element]) * Sum(parts[b.lane].b[b.element]);
        }
        results[element] = finish<D>(sum, saturate);
    }
}

}  // namespace wmma
}  // namespace lk

namespace nvcuda {
namespace wmma {

template <int Rows, int Columns, int Depth, class D, class A, class LayoutA, class B, class LayoutB, class C>
LK_INLINE void mma_sync(fragment<accumulator, Rows, Columns, Depth, D>& d,
                        const fragment<matrix_a, Rows, Columns, Depth, A, LayoutA>& a,
                        const fragment<matrix_b, Rows, Columns, Depth, B, LayoutB>& b,
                        const fragment<accumulator, Rows, Columns, Depth, C>& c, bool saturate = false) {
    static_assert(std::is_same<A, B>::value, "mma_sync: A and B have one type");
    constexpr int flops = std::is_integral<A>::value ? 0 : 2 * Rows * Columns * Depth / 32;
    lk::wmma::tensor_core_multiply<flops, Rows, Columns, Depth>(
        d.x, reinterpret_cast<const A*>(a.x), reinterpret_cast<const B*>(b.x), c.x, saturate);
}

// To the nearest number that a tensor core can take, away from zero in the middle.
LK_INLINE float __float_to_tf32(float value) {
    unsigned bits;
    __builtin_memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7f800000u) != 0x7f800000u) {
        bits += 0x1000u;
    }
    bits &= 0xffffe000u;
    __builtin_memcpy(&value, &bits, sizeof value);
    return value;
}

}  // namespace wmma
}  // namespace nvcuda
