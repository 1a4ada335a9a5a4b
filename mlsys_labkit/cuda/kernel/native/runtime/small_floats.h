// small_floats.h: numbers of 8 and 16 bits as float, and back, rounded to nearest even.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

namespace lk {

inline float float_of_bits(uint32_t bits) {
    float number;
    memcpy(&number, &bits, sizeof number);
    return number;
}

inline uint32_t bits_of_float(float number) {
    uint32_t bits;
    memcpy(&bits, &number, sizeof bits);
    return bits;
}

// A number with a sign bit, `exponents` bits of exponent and `fractions` of fraction. finite: the highest exponent holds
// numbers, too, and only all ones is NaN (e4m3).
template <int exponents, int fractions, bool finite = false>
inline float small_float(uint32_t bits) {
    constexpr uint32_t top = (1u << exponents) - 1;
    const uint32_t sign = bits >> (exponents + fractions) & 1, exponent = bits >> fractions & top;
    const uint32_t fraction = bits & ((1u << fractions) - 1);
    constexpr int bias = (1 << (exponents - 1)) - 1;
    if (finite ? (exponent == top && fraction == (1u << fractions) - 1) : exponent == top) {
        const bool is_nan = finite || fraction != 0;
        return float_of_bits(sign << 31 | 0x7f800000u | (is_nan ? 0x400000u | fraction << (23 - fractions) : 0));
    }
    if (exponent) return float_of_bits(sign << 31 | (exponent + 127 - bias) << 23 | fraction << (23 - fractions));
    const float small = std::ldexp(float(fraction), 1 - bias - fractions);
    return sign ? -small : small;
}

inline float half_to_float(uint16_t bits) { return small_float<5, 10>(bits); }
inline float bfloat_to_float(uint16_t bits) { return float_of_bits(uint32_t{bits} << 16); }

inline uint16_t float_to_bfloat(float number) {
    const uint32_t bits = bits_of_float(number);
    if (std::isnan(number)) return uint16_t(bits >> 16 | 0x40);
    return uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// Takes a double, so that a sum is rounded once.
inline uint16_t double_to_half(double number) {
    const uint16_t sign = std::signbit(number) ? 0x8000 : 0;
    if (std::isnan(number)) return 0x7fff;
    const double size = std::fabs(number);
    if (size >= 65520) return uint16_t(sign | 0x7c00);
    int exponent;
    std::frexp(size, &exponent);
    const int unit = (exponent - 1 < -14 ? -14 : exponent - 1) - 10;  // of the last place
    const double units = std::nearbyint(std::ldexp(size, -unit));
    const uint32_t whole = uint32_t(units);
    return uint16_t(sign | (whole < 1024 ? whole : uint32_t(unit + 24) * 1024 + whole));
}

}  // namespace lk
