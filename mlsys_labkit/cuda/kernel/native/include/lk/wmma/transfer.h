// transfer.h: tiles from and to memory. The accesses that are recorded are those of sm_80 and later, as its machine code has
// them: 4 bytes a lane and block of eight lines; ldmatrix for two-byte inputs in shared memory; single elements where the
// memory's order is not the tile's and elements are not two bytes wide.
#pragma once

#include <cstddef>

#include "lk/wmma/fragment.h"

namespace lk {
namespace wmma {

enum class Direction { load, store };

template <Direction direction>
LK_INLINE void record(const void* address, int bytes) {
    if (direction == Direction::load) {
        lk_read(address, bytes);
    } else {
        lk_write(const_cast<void*>(address), bytes);
    }
}

// ldmatrix: each lane gives the address of one line of a block of eight lines of 16 bytes; up to four blocks a request.
template <class Tile>
LK_INLINE void record_ldmatrix(const typename Tile::Number* tile, unsigned stride, bool rows_are_lines) {
    constexpr int line_bytes = 16;
    constexpr int numbers = line_bytes / sizeof(typename Tile::Number);
    const int lines = rows_are_lines ? Tile::rows : Tile::columns;
    const int blocks = Tile::rows * Tile::columns / (8 * numbers);
    for (int first = 0; first < blocks; first += 4) {
        const int block = first + int(lk_lane()) / 8;
        if (block < blocks) {
            const int line = block * 8 % lines + int(lk_lane()) % 8;
            const int along = block * 8 / lines * numbers;
            lk_read(tile + size_t(line) * stride + along, line_bytes);
        }
    }
}

template <Direction direction, class Tile>
LK_INLINE void record_tile(const typename Tile::Number* tile, unsigned stride, bool row_major) {
    using Number = typename Tile::Number;
    const bool in_order = row_major == Tile::lines_are_rows;
    if (direction == Direction::load && sizeof(Number) == 2 && (Tile::is_a || Tile::is_b) && lk_is_shared(tile)) {
        record_ldmatrix<Tile>(tile, stride, row_major);
    } else if (in_order || sizeof(Number) == 2) {
        // Whole packs. Two-byte elements in the other order are turned in registers.
        const int over = (row_major ? Tile::rows : Tile::columns) / 8;
        for (int block = 0; block < Tile::blocks; ++block) {
            const int line = block % over * 8 + int(lk_lane()) / 4;
            const int along = (block / over * 4 + int(lk_lane()) % 4) * Tile::pack;
            record<direction>(tile + size_t(line) * stride + along, Tile::pack * sizeof(Number));
        }
    } else {
        for (int element = 0; element < Tile::elements; ++element) {
            const Place place = Tile::place(element, int(lk_lane()));
            const size_t at = row_major ? size_t(place.row) * stride + place.column : size_t(place.column) * stride + place.row;
            record<direction>(tile + at, sizeof(Number));
        }
    }
}

template <class Tile, int count>
LK_OPAQUE void load_tile(typename Tile::Number (&elements)[count], const typename Tile::Number* tile, unsigned stride,
                         bool row_major) {
    for (int element = 0; element < count; ++element) {
        const Place place = Tile::place(element % Tile::elements, int(lk_lane()));
        elements[element] = row_major ? tile[size_t(place.row) * stride + place.column]
                                      : tile[size_t(place.column) * stride + place.row];
    }
}

template <class Tile, int count>
LK_OPAQUE void store_tile(const typename Tile::Number (&elements)[count], typename Tile::Number* tile, unsigned stride,
                          bool row_major) {
    for (int element = 0; element < Tile::elements; ++element) {
        const Place place = Tile::place(element, int(lk_lane()));
        (row_major ? tile[size_t(place.row) * stride + place.column] : tile[size_t(place.column) * stride + place.row]) =
            elements[element];
    }
}

// What a GPU takes for granted, and reads or writes elsewhere without. Where nvcc would put a shared array is not known.
template <class Number>
LK_INLINE void require_aligned(const Number* tile, unsigned stride) {
    if (reinterpret_cast<size_t>(tile) % (lk_is_shared(tile) ? 16 : 32) != 0) {
        lk_assert_fail("the address of a wmma tile is a multiple of 32 bytes", __FILE__, __LINE__, __func__);
    }
    if (stride * sizeof(Number) % 16 != 0) {
        lk_assert_fail("lines of a wmma tile are a multiple of 16 bytes apart", __FILE__, __LINE__, __func__);
    }
}

template <class Use, int rows, int columns, int depth, class Type, class Layout>
LK_INLINE void load(nvcuda::wmma::fragment<Use, rows, columns, depth, Type, Layout>& into,
                    const typename StoredAs<Type>::Number* tile, unsigned stride, bool row_major) {
    using Shape = Tile<Use, rows, columns, depth, Type>;
#ifdef __SANITIZE_THREAD__
    require_aligned(tile, stride);
    record_tile<Direction::load, Shape>(tile, stride, row_major);
#endif
    load_tile<Shape>(into.x, tile, stride, row_major);
}

}  // namespace wmma
}  // namespace lk

namespace nvcuda {
namespace wmma {

// Number is deduced apart from Type, since tf32 tiles are loaded from floats.
template <class Use, int Rows, int Columns, int Depth, class Type, class Layout, class Number>
LK_INLINE void load_matrix_sync(fragment<Use, Rows, Columns, Depth, Type, Layout>& into, const Number* tile, unsigned stride) {
    static_assert(!std::is_same<Layout, void>::value, "an accumulator is loaded with a layout: mem_row_major or mem_col_major");
    static_assert(std::is_same<Number, typename lk::wmma::StoredAs<Type>::Number>::value,
                  "load_matrix_sync: the matrix in memory has another type than the fragment");
    lk::wmma::load(into, tile, stride, std::is_same<Layout, row_major>::value);
}

template <int Rows, int Columns, int Depth, class Type, class Number>
LK_INLINE void load_matrix_sync(fragment<accumulator, Rows, Columns, Depth, Type>& into, const Number* tile, unsigned stride,
                                layout_t layout) {
    static_assert(std::is_same<Number, Type>::value, "load_matrix_sync: the matrix in memory has another type than the fragment");
    lk::wmma::load(into, tile, stride, layout == mem_row_major);
}

template <int Rows, int Columns, int Depth, class Type, class Number>
LK_INLINE void store_matrix_sync(Number* tile, const fragment<accumulator, Rows, Columns, Depth, Type>& from, unsigned stride,
                                 layout_t layout) {
    static_assert(std::is_same<Number, Type>::value, "store_matrix_sync: the matrix in memory has another type than the fragment");
    using Shape = lk::wmma::Tile<accumulator, Rows, Columns, Depth, Type>;
#ifdef __SANITIZE_THREAD__
    lk::wmma::require_aligned(tile, stride);
    lk::wmma::record_tile<lk::wmma::Direction::store, Shape>(tile, stride, layout == mem_row_major);
#endif
    lk::wmma::store_tile<Shape>(from.x, tile, stride, layout == mem_row_major);
}

template <class Use, int Rows, int Columns, int Depth, class Type, class Layout, class Number>
LK_INLINE void fill_fragment(fragment<Use, Rows, Columns, Depth, Type, Layout>& into, const Number& value) {
    using Element = typename fragment<Use, Rows, Columns, Depth, Type, Layout>::element_type;
    const Element element = static_cast<Element>(value);
    for (Element& each : into.x) {
        each = element;
    }
}

}  // namespace wmma
}  // namespace nvcuda
