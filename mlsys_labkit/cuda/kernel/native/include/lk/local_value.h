// local_value.h: a look at local variables where their values matter, for check (source/local_reads.py writes these macros).
//
// -ftrivial-auto-var-init=pattern is not enough: gcc takes a variable that is set under a condition for one that is always set.
// What nothing has set holds kUnsetWord, which correct kernels hardly compute. gcc's pattern, 0xFEFEFEFE, may be a pixel or a mask.
// A float that nothing has set is a NaN with the line of its declaration, which arithmetic and shuffles hand on.
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

#include "lk/qualifiers.h"
#include "lk/vectors.h"

#include "../../runtime/abi.h"

namespace lk {

// Bits of a float: a quiet NaN, ten bits that tell it from others, and twelve for the line (hooks.cpp reads them).
constexpr unsigned unset_float(int line) { return 0x7FC00000u | 0x2A5u << 12 | (line < 4096 ? unsigned(line) : 0u); }

template <class T>
constexpr bool has_floats = std::is_same_v<T, float> || std::is_same_v<T, float2> || std::is_same_v<T, float3> ||
                            std::is_same_v<T, float4>;
template <class T>
constexpr bool is_small = std::is_trivially_copyable_v<T> && std::is_trivially_default_constructible_v<T> &&
                          sizeof(T) % 4 == 0 && sizeof(T) <= 16;

// In an array: one in local memory has gcc's pattern.
template <bool in_array, class T>
LK_INLINE auto seen_value(T value, const char* name, int declared) {
    if constexpr (std::is_same_v<T, float>) {
        lk_local_float(__builtin_bit_cast(unsigned, value), name, declared);
    } else if constexpr (std::is_same_v<T, double>) {
        lk_local_double(__builtin_bit_cast(unsigned long long, value), name, declared);
    } else if constexpr (is_small<T> && sizeof(T) == 4) {
        lk_local_value(__builtin_bit_cast(unsigned, value), 4, in_array, name, declared);
    } else if constexpr (is_small<T> && sizeof(T) == 8) {
        lk_local_value(__builtin_bit_cast(unsigned long long, value), 8, in_array, name, declared);
    }
    return value;
}

// What a statement stores: a float shows what it was computed from. Other types pass as they are.
template <class T, bool by_value = std::is_scalar_v<T>>
struct Stored {
    template <class Value>
    LK_INLINE static decltype(auto) see(Value&& value) { return static_cast<Value&&>(value); }
};
template <class T>
struct Stored<T, true> {  // no reference binds to a bit field
    LK_INLINE static T see(T value) { return value; }
};
template <>
struct Stored<float, true> {
    LK_INLINE static float see(float value) { return seen_value<false>(value, "", 0); }
};
template <>
struct Stored<double, true> {
    LK_INLINE static double see(double value) { return seen_value<false>(value, "", 0); }
};

template <unsigned word, size_t... place>
struct Words {
    unsigned words[sizeof...(place)] = {(place, word)...};
};

template <class T, int line, size_t... place>
LK_INLINE T pattern(std::index_sequence<place...>) {
    return __builtin_bit_cast(T, Words<has_floats<T> ? unset_float(line) : kUnsetWord, place...>{});
}

template <int line, class T>
LK_INLINE void leave_unset(T& value);

// No loop: it would be a basic block more, which profile counts.
template <int line, class T, size_t... place>
LK_INLINE void leave_elements_unset(T& values, std::index_sequence<place...>) {
    (leave_unset<line>(values[place]), ...);
}

template <int line, class T>
LK_INLINE void leave_unset(T& value) {
    if constexpr (std::is_array_v<T>) {
        if constexpr (sizeof(T) <= 64 * 16) leave_elements_unset<line>(value, std::make_index_sequence<std::extent_v<T>>{});
    } else if constexpr (std::is_same_v<T, double>) {
        value = __builtin_bit_cast(double, 0x7FF8000000000000ull | (unset_float(line) & 0x3FFFFFull) << 29);
    } else if constexpr (is_small<T>) {
        value = pattern<T, line>(std::make_index_sequence<sizeof(T) / 4>{});
    }
}

}  // namespace lk

#ifdef __SANITIZE_THREAD__
#define LK_UNSET(variable, line) lk::leave_unset<line>(variable);
#define LK_READ(in_array, name, declared, ...) lk::seen_value<in_array>(__VA_ARGS__, name, declared)
#define LK_STORED(...) lk::Stored<std::decay_t<decltype(__VA_ARGS__)>>::see(__VA_ARGS__)
#else
#define LK_UNSET(variable, line)
#define LK_READ(in_array, name, declared, ...) __VA_ARGS__
#define LK_STORED(...) __VA_ARGS__
#endif
