// random.h: the device side of cuRAND.
//
// References: G. Marsaglia, "Xorshift RNGs", Journal of Statistical Software 8 (2003); J. Salmon et al., "Parallel random
// numbers: as easy as 1, 2, 3", SC 2011 (Philox).
#pragma once

#include <cmath>
#include <cstdint>

#include "lk/mrg32k3a.h"
#include "lk/prelude.h"

struct curandStateXORWOW {
    uint32_t d;
    uint32_t v[5];
    bool has_normal;
    bool has_normal_double;
    float normal;
    double normal_double;
};

struct curandStatePhilox4_32_10 {
    uint32_t counter[4];
    uint32_t key[2];
    uint32_t output[4];
    uint32_t used;  // of output
    bool has_normal;
    bool has_normal_double;
    float normal;
    double normal_double;
};

typedef curandStateXORWOW curandState;
typedef curandStateXORWOW curandState_t;
typedef curandStateXORWOW curandStateXORWOW_t;
typedef curandStatePhilox4_32_10 curandStatePhilox4_32_10_t;

namespace lk::random {

constexpr float to_unit = 2.3283064365386963e-10f;          // 2^-32
constexpr double to_unit_double = 1.1102230246251565e-16;   // 2^-53
constexpr double two_pi = 6.283185307179586;
constexpr int subsequence_exponent = 67;  // cuRAND's subsequences are 2^67 numbers apart

LK_UNRECORDED inline void count_up(uint32_t* counter, int from, uint64_t n) {
    for (int word = from; word < 4 && n; ++word) {
        n += counter[word];
        counter[word] = static_cast<uint32_t>(n);
        n >>= 32;
    }
}

LK_UNRECORDED inline void philox_rounds(curandStatePhilox4_32_10& state) {
    uint32_t counter[4] = {state.counter[0], state.counter[1], state.counter[2], state.counter[3]};
    uint32_t key[2] = {state.key[0], state.key[1]};
    for (int round = 0; round < 10; ++round) {
        const uint64_t even = uint64_t{0xD2511F53u} * counter[0];
        const uint64_t odd = uint64_t{0xCD9E8D57u} * counter[2];
        const uint32_t next[4] = {static_cast<uint32_t>(odd >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(odd),
                                  static_cast<uint32_t>(even >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(even)};
        for (int i = 0; i < 4; ++i) counter[i] = next[i];
        key[0] += 0x9E3779B9u;
        key[1] += 0xBB67AE85u;
    }
    for (int i = 0; i < 4; ++i) state.output[i] = counter[i];
}

LK_OPAQUE inline void seed(curandStateXORWOW& state, uint64_t seed, uint64_t subsequence, uint64_t offset) {
    const uint32_t low = 1099087573u * (static_cast<uint32_t>(seed) ^ 0xaad26b49u);
    const uint32_t high = 2591861531u * (static_cast<uint32_t>(seed >> 32) ^ 0xf7dcefddu);
    state = {};
    state.d = 6615241u + high + low + 362437u * static_cast<uint32_t>(offset);
    const uint32_t v[5] = {123456789u + low, 362436069u ^ low, 521288629u + high, 88675123u ^ high, 5783321u + low};
    for (int i = 0; i < 5; ++i) state.v[i] = v[i];
    if (subsequence) lk_xorwow_jump(state.v, subsequence, subsequence_exponent);
    if (offset) lk_xorwow_jump(state.v, offset, 0);
}

LK_OPAQUE inline void seed(curandStatePhilox4_32_10& state, uint64_t seed, uint64_t subsequence, uint64_t offset) {
    state = {};
    state.key[0] = static_cast<uint32_t>(seed);
    state.key[1] = static_cast<uint32_t>(seed >> 32);
    count_up(state.counter, 2, subsequence);
    count_up(state.counter, 0, offset / 4);
    state.used = static_cast<uint32_t>(offset % 4);
    philox_rounds(state);
}

LK_OPAQUE inline uint32_t next(curandStateXORWOW& state) {
    uint32_t* v = state.v;
    const uint32_t t = v[0] ^ (v[0] >> 2);
    for (int i = 0; i < 4; ++i) v[i] = v[i + 1];
    v[4] = (v[4] ^ (v[4] << 4)) ^ (t ^ (t << 1));
    state.d += 362437u;
    return v[4] + state.d;
}

LK_OPAQUE inline uint32_t next(curandStatePhilox4_32_10& state) {
    if (state.used == 4) {
        count_up(state.counter, 0, 1);
        philox_rounds(state);
        state.used = 0;
    }
    return state.output[state.used++];
}

// The functions above are not recorded; this records what they do to a state, which may lie in global memory.
template <class State>
LK_INLINE void record(State* state) {
#ifdef __SANITIZE_THREAD__
    lk_read(state, sizeof *state);
    lk_write(state, sizeof *state);
#endif
    (void)state;
}

template <class State>
LK_OPAQUE float next_uniform(State& state) {
    return static_cast<float>(next(state)) * to_unit + to_unit / 2;
}

template <class State>
LK_OPAQUE double next_uniform_double(State& state) {
    const uint64_t low = next(state);
    const uint64_t high = next(state);
    return static_cast<double>(low ^ (high << 21)) * to_unit_double + to_unit_double / 2;
}

// Box and Muller's transform gives two at a time.
template <class State>
LK_OPAQUE float2 next_normal_pair(State& state) {
    const float radius = sqrtf(-2.0f * logf(next_uniform(state)));
    const float angle = static_cast<float>(two_pi) * next_uniform(state);
    return {radius * sinf(angle), radius * cosf(angle)};
}

template <class State>
LK_OPAQUE double2 next_normal_pair_double(State& state) {
    const double radius = sqrt(-2.0 * log(next_uniform_double(state)));
    const double angle = two_pi * next_uniform_double(state);
    return {radius * sin(angle), radius * cos(angle)};
}

template <class State>
LK_OPAQUE float next_normal(State& state) {
    state.has_normal = !state.has_normal;
    if (!state.has_normal) return state.normal;
    const float2 pair = next_normal_pair(state);
    state.normal = pair.y;
    return pair.x;
}

template <class State>
LK_OPAQUE double next_normal_double(State& state) {
    state.has_normal_double = !state.has_normal_double;
    if (!state.has_normal_double) return state.normal_double;
    const double2 pair = next_normal_pair_double(state);
    state.normal_double = pair.y;
    return pair.x;
}

// Knuth's product of uniforms, a part of the mean at a time so that the product does not vanish.
template <class State>
LK_OPAQUE uint32_t next_poisson(State& state, double mean) {
    uint32_t events = 0;
    for (constexpr double part = 500; mean > 0; mean -= part) {
        const double least = exp(-fmin(mean, part));
        for (double product = next_uniform_double(state); product > least; product *= next_uniform_double(state)) ++events;
    }
    return events;
}

}  // namespace lk::random

template <class State>
LK_INLINE void curand_init(unsigned long long seed, unsigned long long subsequence, unsigned long long offset,
                           State* state) {
#if defined(__SANITIZE_THREAD__)
    lk_write(state, sizeof *state);  // nothing of what was there is read
#endif
    lk::random::seed(*state, seed, subsequence, offset);
}

template <class State>
LK_INLINE void skipahead(unsigned long long n, State* state) {
    for (unsigned long long i = 0; i < n; ++i) lk::random::next(*state);
}

#define LK_NEXT(name, Result, next)                \
    template <class State>                         \
    LK_INLINE Result name(State* state) {          \
        lk::random::record(state);                 \
        return lk::random::next(*state);           \
    }

LK_NEXT(curand, unsigned int, next)
LK_NEXT(curand_uniform, float, next_uniform)
LK_NEXT(curand_uniform_double, double, next_uniform_double)
LK_NEXT(curand_normal, float, next_normal)
LK_NEXT(curand_normal_double, double, next_normal_double)
LK_NEXT(curand_normal2, float2, next_normal_pair)
LK_NEXT(curand_normal2_double, double2, next_normal_pair_double)
#undef LK_NEXT

template <class State>
LK_INLINE float curand_log_normal(State* state, float mean, float deviation) {
    return expf(mean + deviation * curand_normal(state));
}

template <class State>
LK_INLINE double curand_log_normal_double(State* state, double mean, double deviation) {
    return exp(mean + deviation * curand_normal_double(state));
}

template <class State>
LK_INLINE unsigned int curand_poisson(State* state, double mean) {
    lk::random::record(state);
    return lk::random::next_poisson(*state, mean);
}

LK_INLINE uint4 curand4(curandStatePhilox4_32_10_t* state) {
    const unsigned int x = curand(state);
    const unsigned int y = curand(state);
    const unsigned int z = curand(state);
    return {x, y, z, curand(state)};
}

LK_INLINE float4 curand_uniform4(curandStatePhilox4_32_10_t* state) {
    const float x = curand_uniform(state);
    const float y = curand_uniform(state);
    const float z = curand_uniform(state);
    return {x, y, z, curand_uniform(state)};
}

LK_INLINE float4 curand_normal4(curandStatePhilox4_32_10_t* state) {
    const float2 one = curand_normal2(state);
    const float2 other = curand_normal2(state);
    return {one.x, one.y, other.x, other.y};
}
