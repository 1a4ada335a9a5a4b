// warp.h: shuffles, votes, matches and reductions among the lanes of a warp.
#pragma once

#include <type_traits>

#include "lk/builtins.h"

namespace lk {

template <class Value>
LK_INLINE auto shuffle(unsigned mask, Value value, int mode, int argument, int width) {
    static_assert(std::is_trivially_copy_constructible<Value>::value, "a shuffle moves plain values");
    Value result;
    lk_shuffle(mask, &value, &result, sizeof(Value), mode, argument, width);
    return result;
}

template <class Value>
constexpr bool is_shuffled =
    std::is_arithmetic<Value>::value ? sizeof(Value) >= 4 && sizeof(Value) <= 8 : std::is_class<Value>::value;

template <class Value, class Result = Value>
using IfShuffled = typename std::enable_if<is_shuffled<Value>, Result>::type;

// Folds the values of the lanes that are present, lowest lane first.
template <class Value, class Operation>
LK_OPAQUE auto fold_values(const Value* values, unsigned present, Operation operation) {
    Value result{};
    bool first = true;
    for (int lane = 0; lane < 32; ++lane) {
        if (present >> lane & 1) {
            result = first ? values[lane] : operation(result, values[lane]);
            first = false;
        }
    }
    return result;
}

// The same for the lanes of mask. A report names the line that calls this.
template <class Value, class Operation>
LK_INLINE auto fold(unsigned mask, Value value, Operation operation) {
    Value values[32];
    const unsigned present = lk_gather(mask, &value, values, sizeof(Value));
    return fold_values(values, present, operation);
}

}  // namespace lk

#define LK_SHUFFLES(Value)                                                                                        \
    LK_INLINE Value __shfl_sync(unsigned mask, Value value, int lane, int width = 32) {                           \
        return lk::shuffle(mask, value, lk_shuffle_index, lane, width);                                           \
    }                                                                                                             \
    LK_INLINE Value __shfl_up_sync(unsigned mask, Value value, unsigned delta, int width = 32) {                  \
        return lk::shuffle(mask, value, lk_shuffle_up, int(delta), width);                                        \
    }                                                                                                             \
    LK_INLINE Value __shfl_down_sync(unsigned mask, Value value, unsigned delta, int width = 32) {                \
        return lk::shuffle(mask, value, lk_shuffle_down, int(delta), width);                                      \
    }                                                                                                             \
    LK_INLINE Value __shfl_xor_sync(unsigned mask, Value value, int lane_mask, int width = 32) {                  \
        return lk::shuffle(mask, value, lk_shuffle_xor, lane_mask, width);                                        \
    }

// As many overloads as CUDA has, so that a short becomes an int and a struct is an error.
LK_SHUFFLES(int)
LK_SHUFFLES(unsigned)
LK_SHUFFLES(long)
LK_SHUFFLES(unsigned long)
LK_SHUFFLES(long long)
LK_SHUFFLES(unsigned long long)
LK_SHUFFLES(float)
LK_SHUFFLES(double)

LK_INLINE unsigned __ballot_sync(unsigned mask, int predicate) { return lk_ballot(mask, predicate != 0); }

LK_INLINE int __any_sync(unsigned mask, int predicate) { return lk_ballot(mask, predicate != 0) != 0; }

LK_INLINE int __all_sync(unsigned mask, int predicate) { return lk_ballot(mask, predicate == 0) == 0; }

LK_INLINE int __uni_sync(unsigned mask, int predicate) {
    unsigned yes = lk_ballot(mask, predicate != 0);
    return yes == 0 || lk_ballot(mask, predicate == 0) == 0;
}

LK_INLINE unsigned __activemask() { return lk_active_mask(); }

// A short is compared as the int that it becomes.
template <class Value>
LK_INLINE unsigned __match_any_sync(unsigned mask, Value value) {
    static_assert(std::is_arithmetic<Value>::value && sizeof(Value) <= 8, "__match_any_sync compares numbers");
    const decltype(+value) number = value;
    return lk_match(mask, &number, sizeof number);
}

template <class Value>
LK_INLINE unsigned __match_all_sync(unsigned mask, Value value, int* all) {
    const unsigned same = __match_any_sync(mask, value);
    *all = lk_ballot(mask, same != mask) == 0;
    return *all ? mask : 0;
}

// clang-format off
LK_INLINE unsigned __reduce_add_sync(unsigned mask, unsigned value) { return lk::fold(mask, value, [](unsigned a, unsigned b) LK_UNRECORDED { return a + b; }); }
LK_INLINE unsigned __reduce_min_sync(unsigned mask, unsigned value) { return lk::fold(mask, value, [](unsigned a, unsigned b) LK_UNRECORDED { return b < a ? b : a; }); }
LK_INLINE unsigned __reduce_max_sync(unsigned mask, unsigned value) { return lk::fold(mask, value, [](unsigned a, unsigned b) LK_UNRECORDED { return a < b ? b : a; }); }
LK_INLINE int __reduce_add_sync(unsigned mask, int value) { return int(__reduce_add_sync(mask, unsigned(value))); }
LK_INLINE int __reduce_min_sync(unsigned mask, int value) { return lk::fold(mask, value, [](int a, int b) LK_UNRECORDED { return b < a ? b : a; }); }
LK_INLINE int __reduce_max_sync(unsigned mask, int value) { return lk::fold(mask, value, [](int a, int b) LK_UNRECORDED { return a < b ? b : a; }); }
LK_INLINE unsigned __reduce_and_sync(unsigned mask, unsigned value) { return lk::fold(mask, value, [](unsigned a, unsigned b) LK_UNRECORDED { return a & b; }); }
LK_INLINE unsigned __reduce_or_sync(unsigned mask, unsigned value) { return lk::fold(mask, value, [](unsigned a, unsigned b) LK_UNRECORDED { return a | b; }); }
LK_INLINE unsigned __reduce_xor_sync(unsigned mask, unsigned value) { return lk::fold(mask, value, [](unsigned a, unsigned b) LK_UNRECORDED { return a ^ b; }); }
// clang-format on
