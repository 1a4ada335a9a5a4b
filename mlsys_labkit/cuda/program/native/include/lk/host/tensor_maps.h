// tensor_maps.h: tensor maps, as the host makes them.
#pragma once

#include <cstdint>

#include "lk/tensor_map.h"

typedef uint32_t cuuint32_t;
typedef uint64_t cuuint64_t;

// 0, or why the driver would refuse the map; the report says which rule it breaks.
extern "C" int lk_program_tensor_map(CUtensorMap* map, int type, unsigned rank, void* address, const cuuint64_t* sizes,
                                     const cuuint64_t* strides, const cuuint32_t* box, const cuuint32_t* steps, int interleave,
                                     int swizzle, int l2_promotion, int fill);
extern "C" int lk_program_replace_address(CUtensorMap* map, void* address);

inline CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* address,
                                       const cuuint64_t* sizes, const cuuint64_t* strides, const cuuint32_t* box,
                                       const cuuint32_t* steps, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                       CUtensorMapL2promotion l2_promotion, CUtensorMapFloatOOBfill fill) {
    return CUresult(lk_program_tensor_map(map, type, rank, address, sizes, strides, box, steps, interleave, swizzle, l2_promotion, fill));
}
inline CUresult cuTensorMapReplaceAddress(CUtensorMap* map, void* address) {
    return CUresult(lk_program_replace_address(map, address));
}
