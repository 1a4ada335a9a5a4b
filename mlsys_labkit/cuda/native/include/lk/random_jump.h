// random_jump.h: far jumps of the XORWOW generator. One step is a linear map of its 160 bits, so 2^n steps are a power of it.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "lk/qualifiers.h"

namespace lk::random {

constexpr int words = 5;
constexpr int bits = 32 * words;
using XorwowBits = std::array<uint32_t, words>;
using LinearMap = std::array<XorwowBits, bits>;  // the image of each bit

LK_UNRECORDED inline void xorwow_step(XorwowBits& v) {
    const uint32_t t = v[0] ^ (v[0] >> 2);
    v[0] = v[1];
    v[1] = v[2];
    v[2] = v[3];
    v[3] = v[4];
    v[4] = (v[4] ^ (v[4] << 4)) ^ (t ^ (t << 1));
}

LK_UNRECORDED inline XorwowBits image_of(const LinearMap& map, const XorwowBits& v) {
    XorwowBits image{};
    for (int bit = 0; bit < bits; ++bit) {
        if ((v[bit / 32] >> (bit % 32) & 1) == 0) continue;
        for (int word = 0; word < words; ++word) image[word] ^= map[bit][word];
    }
    return image;
}

LK_UNRECORDED inline LinearMap squared(const LinearMap& map) {
    LinearMap twice;
    for (int bit = 0; bit < bits; ++bit) twice[bit] = image_of(map, map[bit]);
    return twice;
}

LK_UNRECORDED inline LinearMap one_step() {
    LinearMap map{};
    for (int bit = 0; bit < bits; ++bit) {
        map[bit][bit / 32] = 1u << (bit % 32);
        xorwow_step(map[bit]);
    }
    return map;
}

// Map number n makes 2^n steps.
constexpr int subsequence_exponent = 67;  // cuRAND's subsequences are so far apart
constexpr int most_exponent = subsequence_exponent + 64;

LK_OPAQUE inline const std::vector<LinearMap>& jumps() {
    static const std::vector<LinearMap> maps = [] {
        std::vector<LinearMap> powers{one_step()};
        for (int n = 1; n < most_exponent; ++n) powers.push_back(squared(powers.back()));
        return powers;
    }();
    return maps;
}

// Makes count * 2^exponent steps.
LK_UNRECORDED inline void jump(XorwowBits& v, uint64_t count, int exponent) {
    for (int n = 0; count >> n; ++n) {
        if (count >> n & 1) v = image_of(jumps()[static_cast<size_t>(exponent + n)], v);
    }
}

}  // namespace lk::random
