// multiply.h: D = A B + C on tiles that are spread over a warp. Products are exact, sums are rounded once at their end: a
// tensor core, which rounds in between, is no more accurate.
#pragma once

#include "lk/floats.h"
#include "lk/wmma/transfer.h"

namespace lk {
namespace wmma {

// What an input is multiplied as.
template <class Type>
struct Input {
    using Number = std::conditional_t<std::is_same<Type, double>::value, double,
                                      std::conditional_t<std::is_integral<Type>::value, int, float>>;
    static LK_INLINE Number take(const Type& value) { return Number(value); }
};

// A tensor core takes the upper 19 bits of a float.
template <>
struct Input<nvcuda::wmma::precision::tf32> {
    using Number = float;
    static LK_INLINE float take(float value) { return __uint_as_float(__float_as_uint(value) & 0xffffe000u); }
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

// The profile reads the FLOPs of a call from this name and its first number: of a lane, 0 for integers. Returns whether the
// whole warp took part; the results mean nothing where it did not.
template <int flops, int rows, int columns, int depth, class Result, class TypeA, class TypeB, class Addend>
LK_OPAQUE bool tensor_core_multiply(Result* results, const TypeA* left, const TypeB* right, const Addend* addends,
                                    bool saturate) {
    using TileA = Tile<nvcuda::wmma::matrix_a, rows, columns, depth, TypeA>;
    using TileB = Tile<nvcuda::wmma::matrix_b, rows, columns, depth, TypeB>;
    using TileC = Tile<nvcuda::wmma::accumulator, rows, columns, depth, Result>;
    using Number = typename Input<TypeA>::Number;
    using Sum = typename std::conditional<std::is_same<Number, int>::value, long long, double>::type;
    struct Part {
        Number left[TileA::elements];
        Number right[TileB::elements];
    };

    Part mine;
    for (int i = 0; i < TileA::elements; ++i) {
        mine.left[i] = Input<TypeA>::take(reinterpret_cast<const typename TileA::Number*>(left)[i]);
    }
    for (int i = 0; i < TileB::elements; ++i) {
        mine.right[i] = Input<TypeB>::take(reinterpret_cast<const typename TileB::Number*>(right)[i]);
    }
    Part parts[32];
    const bool all_lanes_are_here = lk_gather(0xffffffffu, &mine, parts, sizeof mine) == 0xffffffffu;

    for (int element = 0; element < TileC::elements; ++element) {
        const Place place = TileC::place(element, int(lk_lane()));
        Sum sum = Sum(addends[element]);
        for (int i = 0; i < depth; ++i) {
            const auto from_left = TileA::owner(place.row, i);
            const auto from_right = TileB::owner(i, place.column);
            sum += Sum(parts[from_left.lane].left[from_left.element]) * Sum(parts[from_right.lane].right[from_right.element]);
        }
        results[element] = finish<Result>(sum, saturate);
    }
    return all_lanes_are_here;
}

}  // namespace wmma
}  // namespace lk

namespace nvcuda {
namespace wmma {

template <int Rows, int Columns, int Depth, class Result, class TypeA, class LayoutA, class TypeB, class LayoutB, class Addend>
LK_INLINE void mma_sync(fragment<accumulator, Rows, Columns, Depth, Result>& result,
                        const fragment<matrix_a, Rows, Columns, Depth, TypeA, LayoutA>& left,
                        const fragment<matrix_b, Rows, Columns, Depth, TypeB, LayoutB>& right,
                        const fragment<accumulator, Rows, Columns, Depth, Addend>& addend, bool saturate = false) {
    static_assert(std::is_same<TypeA, TypeB>::value, "mma_sync: A and B have one type");
    constexpr int flops = std::is_integral<TypeA>::value ? 0 : 2 * Rows * Columns * Depth / 32;
    if (!lk::wmma::tensor_core_multiply<flops, Rows, Columns, Depth>(result.x, reinterpret_cast<const TypeA*>(left.x),
                                                                     reinterpret_cast<const TypeB*>(right.x), addend.x,
                                                                     saturate)) {
        lk_assert_fail("all 32 lanes of the warp take part in mma_sync", __FILE__, __LINE__, __func__);
    }
}

// To the nearest number that a tensor core can take, away from zero in the middle.
LK_INLINE float __float_to_tf32(float value) {
    const unsigned bits = __float_as_uint(value);
    const bool is_finite = (bits & 0x7f800000u) != 0x7f800000u;
    return __uint_as_float((is_finite ? bits + 0x1000u : bits) & 0xffffe000u);
}

}  // namespace wmma
}  // namespace nvcuda
