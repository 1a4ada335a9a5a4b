// mrg32k3a.h: the device side of cuRAND: two linear recurrences modulo primes near 2^32, combined.
//
// Reference: P. L'Ecuyer, "Good parameters and implementations for combined multiple recursive random number generators",
// Operations Research 47 (1999).
#pragma once

#include <cstdint>

#include "lk/prelude.h"

struct curandStateMRG32k3a {
    uint32_t first[3];
    uint32_t second[3];
    bool has_normal;
    bool has_normal_double;
    float normal;
    double normal_double;
};

typedef curandStateMRG32k3a curandStateMRG32k3a_t;

namespace lk::random {

struct Recurrence {
    uint64_t modulus;
    uint64_t row[3];  // the next number is row . (oldest, middle, newest)
};

constexpr Recurrence mrg_first{4294967087u, {4294967087u - 810728, 1403580, 0}};
constexpr Recurrence mrg_second{4294944443u, {4294944443u - 1370589, 0, 527612}};
constexpr int mrg_subsequence_exponent = 76;  // cuRAND's subsequences are 2^76 numbers apart

struct Square {
    uint64_t at[3][3];
};

LK_UNRECORDED inline Square product(const Square& a, const Square& b, uint64_t modulus) {
    Square result{};
    for (int i = 0; i < 3; ++i) {
        for (int j = 0; j < 3; ++j) {
            for (int k = 0; k < 3; ++k) result.at[i][j] = (result.at[i][j] + a.at[i][k] * b.at[k][j] % modulus) % modulus;
        }
    }
    return result;
}

// Goes count * 2^exponent numbers on.
LK_UNRECORDED inline void jump(uint32_t* state, const Recurrence& recurrence, uint64_t count, int exponent) {
    const uint64_t* row = recurrence.row;
    Square step{{{0, 1, 0}, {0, 0, 1}, {row[0], row[1], row[2]}}};
    for (int i = 0; i < exponent; ++i) step = product(step, step, recurrence.modulus);
    for (; count; count >>= 1) {
        if (count & 1) {
            const uint64_t old[3] = {state[0], state[1], state[2]};
            for (int i = 0; i < 3; ++i) {
                uint64_t sum = 0;
                for (int k = 0; k < 3; ++k) sum = (sum + step.at[i][k] * old[k] % recurrence.modulus) % recurrence.modulus;
                state[i] = static_cast<uint32_t>(sum);
            }
        }
        step = product(step, step, recurrence.modulus);
    }
}

LK_UNRECORDED inline uint64_t advance(uint32_t* state, const Recurrence& recurrence) {
    uint64_t sum = 0;
    for (int i = 0; i < 3; ++i) sum = (sum + recurrence.row[i] * state[i] % recurrence.modulus) % recurrence.modulus;
    state[0] = state[1];
    state[1] = state[2];
    state[2] = static_cast<uint32_t>(sum);
    return sum;
}

// From 1 to the first modulus.
LK_UNRECORDED inline uint64_t step(curandStateMRG32k3a& state) {
    const uint64_t one = advance(state.first, mrg_first);
    const uint64_t other = advance(state.second, mrg_second);
    return one > other ? one - other : one + mrg_first.modulus - other;
}

LK_OPAQUE inline void seed(curandStateMRG32k3a& state, uint64_t seed, uint64_t subsequence, uint64_t offset) {
    const uint64_t low = static_cast<uint32_t>(seed) ^ 0x55555555u;
    const uint64_t high = static_cast<uint32_t>(seed >> 32) ^ 0xAAAAAAAAu;
    state = {};
    for (int i = 0; i < 3; ++i) {
        const uint64_t factor = i % 2 ? high : low;
        state.first[i] = static_cast<uint32_t>(seed ? 12345 * factor % mrg_first.modulus : 12345);
        state.second[i] = static_cast<uint32_t>(seed ? 12345 * factor % mrg_second.modulus : 12345);
    }
    jump(state.first, mrg_first, subsequence, mrg_subsequence_exponent);
    jump(state.second, mrg_second, subsequence, mrg_subsequence_exponent);
    jump(state.first, mrg_first, offset, 0);
    jump(state.second, mrg_second, offset, 0);
}

LK_OPAQUE inline uint32_t next(curandStateMRG32k3a& state) {
    return static_cast<uint32_t>(step(state) * 0xFFFFFFFFu / mrg_first.modulus);
}

LK_OPAQUE inline double next_uniform_double(curandStateMRG32k3a& state) {
    return static_cast<double>(step(state)) / static_cast<double>(mrg_first.modulus + 1);
}

LK_OPAQUE inline float next_uniform(curandStateMRG32k3a& state) { return static_cast<float>(next_uniform_double(state)); }

}  // namespace lk::random
