// tensor_map.h: what a CUtensorMap holds here: the host writes it, and copies with tensor maps read it.
#pragma once

#include <cstdint>

namespace lk {

constexpr uint64_t kTensorMapMark = 0x7061'6d72'6f73'6e74;  // by which memory that holds no tensor map is recognised
constexpr unsigned kMostDimensions = 5;

// Of CUtensorMapDataType, which has the same numbers.
enum class TensorType : uint8_t { u8, u16, u32, s32, u64, s64, f16, f32, f64, bf16, f32_ftz, tf32, tf32_ftz };

struct TensorMap {
    uint64_t mark;
    uint64_t address;
    uint64_t sizes[kMostDimensions];        // elements, the innermost dimension first
    uint64_t strides[kMostDimensions - 1];  // bytes, of the dimensions behind the innermost
    uint16_t box[kMostDimensions];          // elements
    uint8_t steps[kMostDimensions];         // between the elements that are copied
    uint8_t rank;
    TensorType type;
    uint8_t swizzle;  // 0: none; n: 16 << n bytes wide
    uint8_t fills_nan;
    uint8_t unused[21];
};
static_assert(sizeof(TensorMap) == 128, "as large as CUtensorMap");

constexpr unsigned element_bytes(TensorType type) {
    constexpr unsigned char kBytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};
    return kBytes[static_cast<unsigned>(type)];
}

// A swizzle of 16 << width bytes: bits 4 to 6 of an address are XORed with bits 7 to 9, as many of them as the width says.
constexpr uint64_t swizzled(uint64_t address, unsigned width) {
    return address ^ (address >> 7 & ((uint64_t{1} << width) - 1)) << 4;
}

}  // namespace lk
