// tensor_box.h: a box of a tensor, as copies with tensor maps move it between global and shared memory.
#pragma once

#include <algorithm>

#include "engine.h"
#include "tensor_map.h"

namespace lk {

// Of cp.reduce.async.bulk.tensor; none: a copy.
enum class TensorReduction : int { none, add, min, max, band, bor, bxor, inc, dec };

struct TensorBox {
    TensorMap map;
    i64 at[kMostDimensions] = {};
    bool stores = false;
    TensorReduction reduction = TensorReduction::none;

    u64 count(u32 dimension) const {
        if (dimension >= map.rank) return 1;
        return dimension == 0 ? map.box[0] : (map.box[dimension] + map.steps[dimension] - 1u) / map.steps[dimension];
    }
    u64 row_bytes() const { return map.box[0] * u64{element_bytes(map.type)}; }
    // Rows of a swizzled box lie one width of the swizzle apart.
    u64 pitch() const { return map.swizzle ? u64{16} << map.swizzle : row_bytes(); }
    u64 rows() const { return count(1) * count(2) * count(3) * count(4); }
    u64 bytes() const { return rows() * row_bytes(); }
    u64 shared_bytes() const { return (rows() - 1) * pitch() + (map.swizzle ? pitch() : row_bytes()); }

    // Calls visit(number, address, first, bytes) for each row: the part that lies in the tensor begins at byte `first` of the
    // row and at `address`, and has `bytes` bytes, 0 for none.
    template <class Visit>
    void each_row(Visit visit) const {
        const i64 item = element_bytes(map.type);
        const i64 begin = std::max<i64>(at[0], 0), end = std::min<i64>(at[0] + map.box[0], i64(map.sizes[0]));
        u64 number = 0;
        for (; number < rows(); number++) {
            u64 rest = number;
            bool inside = begin < end;
            u64 address = map.address + u64(begin * item);
            for (u32 dimension = 1; dimension < map.rank; dimension++) {
                const u64 index = rest % count(dimension);
                rest /= count(dimension);
                const i64 place = at[dimension] + i64(index * map.steps[dimension]);
                inside &= place >= 0 && place < i64(map.sizes[dimension]);
                address += u64(place) * map.strides[dimension - 1];
            }
            visit(number, address, inside ? u64((begin - at[0]) * item) : 0, inside ? u64((end - begin) * item) : 0);
        }
    }
};

// Moves the box. `shared`: where its bytes lie now; `place`: the address that decides the swizzle.
void move_box(const TensorBox& box, char* shared, u64 place);

}  // namespace lk
