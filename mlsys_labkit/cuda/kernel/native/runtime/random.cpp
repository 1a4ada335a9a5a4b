// random.cpp: far jumps of the XORWOW generator. One step is a linear map of its 160 bits, so 2^n steps are a power of it.
//
// Here and not in a header, because a kernel's own code can be interrupted and left while it computes the table once.
#include <cstdint>

#include "abi.h"

namespace {

constexpr int kWords = 5;
constexpr int kBits = 32 * kWords;
constexpr int kMaps = 67 + 64;  // cuRAND's subsequences are 2^67 numbers apart, and there are 2^64 of them

struct State {
    uint32_t word[kWords];
};

// The image of each bit.
struct LinearMap {
    State image[kBits];
};

State next(State v) {
    const uint32_t t = v.word[0] ^ (v.word[0] >> 2);
    const uint32_t last = (v.word[4] ^ (v.word[4] << 4)) ^ (t ^ (t << 1));
    return {{v.word[1], v.word[2], v.word[3], v.word[4], last}};
}

State image_of(const LinearMap& map, const State& v) {
    State sum{};
    for (int bit = 0; bit < kBits; ++bit) {
        if ((v.word[bit / 32] >> (bit % 32) & 1) == 0) continue;
        for (int i = 0; i < kWords; ++i) sum.word[i] ^= map.image[bit].word[i];
    }
    return sum;
}

// Map number n makes 2^n steps.
struct JumpTable {
    LinearMap maps[kMaps];

    JumpTable() {
        for (int bit = 0; bit < kBits; ++bit) {
            State one{};
            one.word[bit / 32] = 1u << (bit % 32);
            maps[0].image[bit] = next(one);
        }
        for (int n = 1; n < kMaps; ++n) {
            for (int bit = 0; bit < kBits; ++bit) maps[n].image[bit] = image_of(maps[n - 1], maps[n - 1].image[bit]);
        }
    }
};

}  // namespace

void lk_xorwow_jump(unsigned* words, unsigned long count, int exponent) {
    static const JumpTable table;
    State v{{words[0], words[1], words[2], words[3], words[4]}};
    for (int n = 0; count >> n; ++n) {
        if (count >> n & 1) v = image_of(table.maps[exponent + n], v);
    }
    for (int i = 0; i < kWords; ++i) words[i] = v.word[i];
}
