// seeded_order.h: orders of lanes, warps and blocks under a seed.
#pragma once

#include <cstdint>

namespace lk {

// xorshift64*.
class Random {
public:
    explicit Random(uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15 | 1) {}
    uint32_t next() {
        state_ ^= state_ >> 12;
        state_ ^= state_ << 25;
        state_ ^= state_ >> 27;
        return uint32_t(state_ * 0x2545F4914F6CDD1D >> 32);
    }

private:
    uint64_t state_;
};

}  // namespace lk
