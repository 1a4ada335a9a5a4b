// fragment.h: which lane holds which elements of a matrix tile. As on sm_80 and later, where tiles are made of blocks of eight
// lines, and each lane holds 4 bytes of one line (two numbers of an accumulator).
#pragma once

#include <type_traits>

#include "lk/bfloat16.h"
#include "lk/builtins.h"
#include "lk/half.h"

namespace nvcuda {
namespace wmma {

struct matrix_a;
struct matrix_b;
struct accumulator;
struct row_major;
struct col_major;
enum layout_t { mem_row_major, mem_col_major };

namespace precision {
struct tf32;
}
namespace experimental {
namespace precision {
struct u4;
struct s4;
struct b1;
}  // namespace precision
}  // namespace experimental

}  // namespace wmma
}  // namespace nvcuda

namespace lk {
namespace wmma {

template <class Type>
struct StoredAs {
    using Number = Type;
};
template <>
struct StoredAs<nvcuda::wmma::precision::tf32> {
    using Number = float;
};

template <int rows, int columns, int depth, int expected_rows, int expected_columns, int expected_depth>
constexpr bool is_shape = rows == expected_rows && columns == expected_columns && depth == expected_depth;

// Shapes with 16 products an element, which numbers of one and two bytes have.
template <int rows, int columns, int depth>
constexpr bool is_deep_shape = is_shape<rows, columns, depth, 16, 16, 16> || is_shape<rows, columns, depth, 32, 8, 16> ||
                               is_shape<rows, columns, depth, 8, 32, 16>;

template <class Type>
constexpr bool is_deep_input = std::is_same<Type, __half>::value || std::is_same<Type, __nv_bfloat16>::value ||
                               std::is_same<Type, signed char>::value || std::is_same<Type, unsigned char>::value;

template <class Use, int rows, int columns, int depth, class Type>
constexpr bool is_simulated() {
    const bool tf32_shape = is_shape<rows, columns, depth, 16, 16, 8>;
    const bool double_shape = is_shape<rows, columns, depth, 8, 8, 4>;
    if (std::is_same<Use, nvcuda::wmma::accumulator>::value) {
        return (std::is_same<Type, float>::value && (is_deep_shape<rows, columns, depth> || tf32_shape)) ||
               (std::is_same<Type, __half>::value && is_deep_shape<rows, columns, depth>) ||
               (std::is_same<Type, int>::value && is_deep_shape<rows, columns, depth>) ||
               (std::is_same<Type, double>::value && double_shape);
    }
    return (is_deep_input<Type> && is_deep_shape<rows, columns, depth>) ||
           (std::is_same<Type, nvcuda::wmma::precision::tf32>::value && tf32_shape) ||
           (std::is_same<Type, double>::value && double_shape);
}

struct Place {
    int row;
    int column;
};

// Where the elements of a fragment are. A line is what the lanes of a block are spread over in groups of four; along it the
// four lanes of a group hold `pack` elements each.
template <class Use, int rows_, int columns_, int depth, class Type>
struct Tile {
    using Number = typename StoredAs<Type>::Number;
    static constexpr bool is_a = std::is_same<Use, nvcuda::wmma::matrix_a>::value;
    static constexpr bool is_b = std::is_same<Use, nvcuda::wmma::matrix_b>::value;
    static constexpr int rows = is_b ? depth : rows_;
    static constexpr int columns = is_a ? depth : columns_;
    static constexpr int elements = rows * columns / 32;

    // The tensor core makes 8x32 tiles as transposed 32x8 ones.
    static constexpr bool lines_are_rows = is_a || (!is_b && rows_ != 8) || (!is_b && columns_ == 8);
    static constexpr int pack = !is_a && !is_b ? 2 : sizeof(Number) < 4 ? 4 / sizeof(Number) : 1;
    static constexpr int blocks_over = (lines_are_rows ? rows : columns) / 8;
    static constexpr int blocks_along = (lines_are_rows ? columns : rows) / (4 * pack);
    static constexpr int blocks = blocks_over * blocks_along;

    static constexpr Place place(int element, int lane) {
        const int block = element / pack;
        const int over = is_b ? block / blocks_along : block % blocks_over;
        const int next = is_b ? block % blocks_along : block / blocks_over;
        const int line = over * 8 + lane / 4;
        const int along = (next * 4 + lane % 4) * pack + element % pack;
        return lines_are_rows ? Place{line, along} : Place{along, line};
    }

    struct Owner {
        int lane;
        int element;
    };

    // The inverse of place.
    static constexpr Owner owner(int row, int column) {
        const int line = lines_are_rows ? row : column;
        const int along = lines_are_rows ? column : row;
        const int over = line / 8;
        const int next = along / (4 * pack);
        const int block = is_b ? over * blocks_along + next : next * blocks_over + over;
        return {line % 8 * 4 + along / pack % 4, block * pack + along % pack};
    }
};

}  // namespace wmma
}  // namespace lk

namespace nvcuda {
namespace wmma {

// x holds one lane's part of a tile. Of half inputs every element stands in it twice, as in CUDA's own fragments.
template <class Use, int Rows, int Columns, int Depth, class Type, class Layout = void>
class fragment {
    static_assert(lk::wmma::is_simulated<Use, Rows, Columns, Depth, Type>(),
                  "wmma has no such tile, or it is not simulated: half, bfloat16, char: 16x16x16, 32x8x16, 8x32x16; tf32: "
                  "16x16x8; double: 8x8x4");

    using Tile = lk::wmma::Tile<Use, Rows, Columns, Depth, Type>;
    static constexpr bool is_input = Tile::is_a || Tile::is_b;

public:
    using element_type = typename Tile::Number;
    using storage_element_type = element_type;
    static constexpr int num_elements = is_input && std::is_same<Type, __half>::value ? 16 : Tile::elements;
    static constexpr int num_storage_elements = num_elements;

    element_type x[num_elements];
};

}  // namespace wmma
}  // namespace nvcuda
