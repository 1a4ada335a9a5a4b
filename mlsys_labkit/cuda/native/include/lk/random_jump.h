// random_jump.h: far jumps of the XORWOW generator. One step is a linear map of its 160 bits, so 2^n steps are a power of it.
//
// Plain arrays: the members of std::array would be recorded as a kernel's own code.
#pragma once

#include <cstdint>

#include "lk/qualifiers.h"

namespace lk::random {

constexpr int words = 5;
constexpr int bits = 32 * words;

struct XorwowBits {
    uint32_t word[words];
};

// The image of each bit.
struct LinearMap {
    XorwowBits image[bits];
};

LK_UNRECORDED inline void xorwow_step(XorwowBits& v) {
    const uint32_t t = v.word[0] ^ (v.word[0] >> 2);
    v.word[0] = v.word[1];
    v.word[1] = v.word[2];
    v.word[2] = v.word[3];
    v.word[3] = v.word[4];
    v.word[4] = (v.word[4] ^ (v.word[4] << 4)) ^ (t ^ (t << 1));
}

LK_UNRECORDED inline XorwowBits image_of(const LinearMap& map, const XorwowBits& v) {
    XorwowBits sum{};
    for (int bit = 0; bit < bits; ++bit) {
        if ((v.word[bit / 32] >> (bit % 32) & 1) == 0) continue;
        for (int i = 0; i < words; ++i) sum.word[i] ^= map.image[bit].word[i];
    }
    return sum;
}

constexpr int subsequence_exponent = 67;  // cuRAND's subsequences are 2^67 numbers apart

// Map number n makes 2^n steps.
struct JumpTable {
    LinearMap maps[subsequence_exponent + 64];

    LK_UNRECORDED JumpTable() {
        for (int bit = 0; bit < bits; ++bit) {
            XorwowBits one{};
            one.word[bit / 32] = 1u << (bit % 32);
            xorwow_step(one);
            maps[0].image[bit] = one;
        }
        for (int n = 1; n < subsequence_exponent + 64; ++n) {
            for (int bit = 0; bit < bits; ++bit) maps[n].image[bit] = image_of(maps[n - 1], maps[n - 1].image[bit]);
        }
    }
};

// Makes count * 2^exponent steps.
LK_OPAQUE inline void jump(XorwowBits& v, uint64_t count, int exponent) {
    static const JumpTable table;
    for (int n = 0; count >> n; ++n) {
        if (count >> n & 1) v = image_of(table.maps[exponent + n], v);
    }
}

}  // namespace lk::random
