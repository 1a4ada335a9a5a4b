// local_value.h: a look at a local variable where its value matters, for check (source/local_reads.py writes these macros).
//
// -ftrivial-auto-var-init=pattern is not enough: gcc takes a variable that is set under a condition for one that is always set.
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

#include "lk/qualifiers.h"

#include "../../runtime/abi.h"

namespace lk {

// The value goes to the hook, not its address: the variable stays in a register.
template <class T>
LK_INLINE T seen_value(T value, const char* name, int declared) {
    if constexpr (std::is_trivially_copyable_v<T> && sizeof(T) == 4) {
        lk_local_value(__builtin_bit_cast(unsigned, value), 4, name, declared);
    } else if constexpr (std::is_trivially_copyable_v<T> && sizeof(T) == 8) {
        lk_local_value(__builtin_bit_cast(unsigned long long, value), 8, name, declared);
    }
    return value;
}

template <int... word>
struct Words {
    unsigned words[sizeof...(word)] = {(word, 0xFEFEFEFEu)...};
};

template <class T, int... word>
LK_INLINE T pattern(std::integer_sequence<int, word...>) { return __builtin_bit_cast(T, Words<word...>{}); }

template <class T>
constexpr bool has_pattern = std::is_trivially_copyable_v<T> && std::is_trivially_default_constructible_v<T> && sizeof(T) % 4 == 0 && sizeof(T) <= 16;

// No loop: it would be a basic block more, which profile counts.
template <class T>
LK_INLINE void leave_unset(T& value) {
    if constexpr (has_pattern<T>) value = pattern<T>(std::make_integer_sequence<int, int(sizeof(T) / 4)>{});
}

template <class T, size_t... place>
LK_INLINE void leave_unset(T (&values)[sizeof...(place)], std::index_sequence<place...>) { (leave_unset(values[place]), ...); }

template <class T, size_t count>
LK_INLINE void leave_unset(T (&values)[count]) {
    if constexpr (count <= 64) leave_unset(values, std::make_index_sequence<count>{});
}

}  // namespace lk

#ifdef __SANITIZE_THREAD__
#define LK_READ(value, name, declared) lk::seen_value(value, name, declared)
#define LK_UNSET(variable) lk::leave_unset(variable);
#else
#define LK_UNSET(variable)
#define LK_READ(value, name, declared) value
#endif
