// tensor_box.cpp: see tensor_box.h.
#include "tensor_box.h"

#include <cstring>

#include "small_floats.h"

namespace lk {

namespace {

constexpr u64 kChunk = 16;  // what a swizzle moves

template <class Number>
Number reduced(TensorReduction reduction, Number before, Number value) {
    switch (reduction) {
        case TensorReduction::add: return Number(before + value);
        case TensorReduction::min: return value < before ? value : before;
        case TensorReduction::max: return before < value ? value : before;
        default: break;
    }
    if constexpr (std::is_integral_v<Number>) {
        switch (reduction) {
            case TensorReduction::band: return before & value;
            case TensorReduction::bor: return before | value;
            case TensorReduction::bxor: return before ^ value;
            case TensorReduction::inc: return before >= value ? 0 : Number(before + 1);
            case TensorReduction::dec: return before == 0 || before > value ? value : Number(before - 1);
            default: break;
        }
    }
    return value;
}

template <class Number>
void reduce_as(TensorReduction reduction, char* to, const char* from, u64 bytes) {
    for (u64 at = 0; at < bytes; at += sizeof(Number)) {
        Number before, value;
        memcpy(&before, to + at, sizeof before);
        memcpy(&value, from + at, sizeof value);
        before = reduced(reduction, before, value);
        memcpy(to + at, &before, sizeof before);
    }
}

template <float (*read)(uint16_t), uint16_t (*write)(float)>
void reduce_16(TensorReduction reduction, char* to, const char* from, u64 bytes) {
    const bool counts = reduction > TensorReduction::max;
    if (counts) return reduce_as<u16>(reduction, to, from, bytes);
    for (u64 at = 0; at < bytes; at += 2) {
        u16 before, value;
        memcpy(&before, to + at, sizeof before);
        memcpy(&value, from + at, sizeof value);
        before = write(reduced(reduction, read(before), read(value)));
        memcpy(to + at, &before, sizeof before);
    }
}

uint16_t float_to_half(float number) { return double_to_half(number); }

void reduce(const TensorBox& box, char* to, const char* from, u64 bytes) {
    switch (box.map.type) {
        case TensorType::u8: return reduce_as<u8>(box.reduction, to, from, bytes);
        case TensorType::u16: return reduce_as<u16>(box.reduction, to, from, bytes);
        case TensorType::u32: return reduce_as<u32>(box.reduction, to, from, bytes);
        case TensorType::s32: return reduce_as<int32_t>(box.reduction, to, from, bytes);
        case TensorType::u64: return reduce_as<u64>(box.reduction, to, from, bytes);
        case TensorType::s64: return reduce_as<i64>(box.reduction, to, from, bytes);
        case TensorType::f16: return reduce_16<half_to_float, float_to_half>(box.reduction, to, from, bytes);
        case TensorType::bf16: return reduce_16<bfloat_to_float, float_to_bfloat>(box.reduction, to, from, bytes);
        case TensorType::f64: return reduce_as<double>(box.reduction, to, from, bytes);
        default: return reduce_as<float>(box.reduction, to, from, bytes);
    }
}

// What a load makes of floats: FTZ types have no subnormal numbers, and TF32 is rounded to nearest even.
// Reference: triton-lang/triton#11751, measured on a GPU.
void convert(TensorType type, char* row, u64 bytes) {
    const bool flushes = type == TensorType::f32_ftz || type == TensorType::tf32_ftz;
    const bool rounds = type == TensorType::tf32 || type == TensorType::tf32_ftz;
    if (!flushes && !rounds) return;
    for (u64 at = 0; at < bytes; at += sizeof(u32)) {
        u32 bits;
        memcpy(&bits, row + at, sizeof bits);
        const u32 exponent = bits >> 23 & 0xff;
        if (flushes && exponent == 0) bits &= 0x80000000u;
        if (rounds && exponent != 0xff) bits = (bits + 0xfff + (bits >> 13 & 1)) & ~u32{0x1fff};
        memcpy(row + at, &bits, sizeof bits);
    }
}

void fill(const TensorMap& map, char* row, u64 bytes) {
    memset(row, map.fills_nan ? 0xFF : 0, bytes);
    if (!map.fills_nan) return;
    const u64 item = element_bytes(map.type);
    for (u64 last = item - 1; last < bytes; last += item) row[last] = 0x7F;
}

}  // namespace

void move_box(const TensorBox& box, char* shared, u64 place) {
    std::vector<char> row(box.row_bytes());
    const u64 pitch = box.pitch();
    const auto chunk = [&](u64 number, u64 at) {
        const u64 address = place + number * pitch + at;
        return shared + (swizzled(address, box.map.swizzle) - place);
    };
    box.each_row([&](u64 number, u64 address, u64 first, u64 bytes) {
        char* global = reinterpret_cast<char*>(address);
        if (!box.stores) {
            if (bytes < row.size()) fill(box.map, row.data(), row.size());
            if (bytes) memcpy(row.data() + first, global, bytes);
            convert(box.map.type, row.data() + first, bytes);
            for (u64 at = 0; at < row.size(); at += kChunk) memcpy(chunk(number, at), row.data() + at, kChunk);
            return;
        }
        if (!bytes) return;
        for (u64 at = 0; at < row.size(); at += kChunk) memcpy(row.data() + at, chunk(number, at), kChunk);
        if (box.reduction == TensorReduction::none) memcpy(global, row.data() + first, bytes);
        else reduce(box, global, row.data() + first, bytes);
    });
}

}  // namespace lk
