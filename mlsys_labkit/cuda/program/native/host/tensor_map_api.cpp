// tensor_map_api.cpp: tensor maps, checked by the rules of the CUDA Driver API, "Tensor Map Object Management".
#include <cstring>
#include <string>

#include "journal.h"
#include "lk/host/driver.h"
#include "tensor_map.h"

using lk::element_bytes;
using lk::kMostDimensions;
using lk::TensorMap;
using lk::TensorType;

namespace {

struct Request {
    const void* map;
    int type;
    unsigned rank;
    uint64_t address;
    const cuuint64_t* sizes;
    const cuuint64_t* strides;
    const cuuint32_t* box;
    const cuuint32_t* steps;
    int interleave;
    int swizzle;
    int fill;
};

std::string number(uint64_t value) { return std::to_string(value); }

bool is_real(int type) { return type >= CU_TENSOR_MAP_DATA_TYPE_FLOAT16 && type <= CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ; }

std::string wrong_dimension(const Request& asked, unsigned i) {
    constexpr uint64_t kMostSize = uint64_t{1} << 32, kMostStride = uint64_t{1} << 40;
    const std::string at = "[" + number(i) + "]";
    if (asked.sizes[i] == 0 || asked.sizes[i] > kMostSize) return "globalDim" + at + " is " + number(asked.sizes[i]) + ", not 1 to 2^32";
    if (asked.box[i] == 0 || asked.box[i] > 256) return "boxDim" + at + " is " + number(asked.box[i]) + ", not 1 to 256";
    if (asked.steps[i] == 0 || asked.steps[i] > 8) return "elementStrides" + at + " is " + number(asked.steps[i]) + ", not 1 to 8";
    if (i + 1 == asked.rank) return "";
    const uint64_t stride = asked.strides[i];
    if (stride % 16) return "globalStrides" + at + " is " + number(stride) + " bytes, no multiple of 16";
    if (stride >= kMostStride) return "globalStrides" + at + " is " + number(stride) + " bytes, not less than 2^40";
    return "";
}

// The rule that a map would break; "" for none.
std::string broken_rule(const Request& asked) {
    if (!asked.map || reinterpret_cast<uint64_t>(asked.map) % 64) return "the address of the CUtensorMap is no multiple of 64";
    if (asked.type < 0 || asked.type > CU_TENSOR_MAP_DATA_TYPE_16U6_ALIGN16B) return "tensorDataType is " + std::to_string(asked.type);
    if (asked.rank < 1 || asked.rank > kMostDimensions) return "tensorRank is " + number(asked.rank) + ", not 1 to 5";
    if (!asked.address || asked.address % 16) return "globalAddress is null or no multiple of 16";
    if (!asked.sizes || !asked.box || !asked.steps || (asked.rank > 1 && !asked.strides)) return "an array of dimensions is null";
    for (unsigned i = 0; i < asked.rank; i++) {
        const std::string wrong = wrong_dimension(asked, i);
        if (!wrong.empty()) return wrong;
    }
    const uint64_t row = uint64_t{asked.box[0]} * element_bytes(TensorType(asked.type));
    if (row % 16) return "a row of the box (boxDim[0]) has " + number(row) + " bytes, no multiple of 16";
    const uint64_t width = uint64_t{16} << asked.swizzle;
    if (asked.swizzle && row > width) {
        return "a row of the box (boxDim[0]) has " + number(row) + " bytes, more than the " + number(width) + " of the swizzle";
    }
    if (asked.fill && !is_real(asked.type)) return "oobFill asks for NaN in a tensor of integers";
    return "";
}

int refuse(const std::string& why, CUresult result = CUDA_ERROR_INVALID_VALUE) {
    lk::host::journal().note_once("a tensor map is refused: " + why);
    return result;
}

}  // namespace

int lk_program_tensor_map(CUtensorMap* map, int type, unsigned rank, void* address, const cuuint64_t* sizes, const cuuint64_t* strides,
                          const cuuint32_t* box, const cuuint32_t* steps, int interleave, int swizzle, int l2_promotion, int fill) {
    const bool packed = type > CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ && type <= CU_TENSOR_MAP_DATA_TYPE_16U6_ALIGN16B;
    if (packed || interleave || swizzle > CU_TENSOR_MAP_SWIZZLE_128B) {
        return refuse("elements of 4 and 6 bits, interleaved layouts and swizzles of other atoms than 16 bytes are left out of the "
                      "simulator; a GPU is needed", CUDA_ERROR_NOT_SUPPORTED);
    }
    if (swizzle < 0 || l2_promotion < 0 || l2_promotion > CU_TENSOR_MAP_L2_PROMOTION_L2_256B || fill < 0 || fill > 1) {
        return refuse("swizzle, l2Promotion or oobFill is no value of its type");
    }
    const Request asked{map, type, rank, reinterpret_cast<uint64_t>(address), sizes, strides, box, steps, interleave, swizzle, fill};
    const std::string wrong = broken_rule(asked);
    if (!wrong.empty()) return refuse(wrong);
    TensorMap made{};
    made.mark = lk::kTensorMapMark;
    made.address = asked.address;
    for (unsigned i = 0; i < rank; i++) {
        made.sizes[i] = sizes[i];
        if (i) made.strides[i - 1] = strides[i - 1];
        made.box[i] = static_cast<uint16_t>(box[i]);
        made.steps[i] = static_cast<uint8_t>(steps[i]);
    }
    made.rank = static_cast<uint8_t>(rank);
    made.type = static_cast<TensorType>(type);
    made.swizzle = static_cast<uint8_t>(swizzle);
    made.fills_nan = static_cast<uint8_t>(fill);
    memcpy(static_cast<void*>(map), &made, sizeof made);
    return CUDA_SUCCESS;
}

int lk_program_replace_address(CUtensorMap* map, void* address) {
    TensorMap made;
    memcpy(&made, map, sizeof made);
    const uint64_t at = reinterpret_cast<uint64_t>(address);
    if (made.mark != lk::kTensorMapMark || !at || at % 16) {
        return refuse("its new address is null or no multiple of 16, or it is no tensor map");
    }
    made.address = at;
    memcpy(static_cast<void*>(map), &made, sizeof made);
    return CUDA_SUCCESS;
}
