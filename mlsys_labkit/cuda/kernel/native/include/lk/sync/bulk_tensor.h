// bulk_tensor.h: bulk copies with tensor maps: one thread asks for a box of a tensor of one to five dimensions.
#pragma once

#include "lk/synchronize.h"
#include "lk/tensor_map.h"

namespace lk {

// As TensorReduction of the runtime.
enum class TensorReduction { none, add, min, max, band, bor, bxor, inc, dec };

// ranks: the blocks of the cluster that get the box; 0: no multicast. The coordinates begin with the innermost dimension.
template <class... Coordinates>
LK_INLINE void bulk_tensor_load(void* to, const void* map, void* barrier, unsigned ranks, Coordinates... at) {
    const int places[] = {int(at)...};
    lk_bulk_tensor_load(to, map, places, sizeof...(at), barrier, ranks);
}

template <TensorReduction reduction = TensorReduction::none, class... Coordinates>
LK_INLINE void bulk_tensor_store(const void* map, const void* from, Coordinates... at) {
    const int places[] = {int(at)...};
    lk_bulk_tensor_store(map, places, sizeof...(at), from, int(reduction));
}

}  // namespace lk
