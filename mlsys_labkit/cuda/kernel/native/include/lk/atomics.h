// atomics.h: atomicAdd and its relatives: one recorded access, then the operation itself, which the hooks do not see.
#pragma once

#include <cstdint>
#include <type_traits>

#include "lk/vectors.h"

#include "../../runtime/abi.h"

namespace lk {

template <int bytes>
struct WordOf;
template <>
struct WordOf<2> {
    typedef uint16_t Type __attribute__((may_alias));
};
template <>
struct WordOf<4> {
    typedef uint32_t Type __attribute__((may_alias));
};
template <>
struct WordOf<8> {
    typedef uint64_t Type __attribute__((may_alias));
};

// Replaces *address by operation(*address) and returns what was there.
template <class Value, class Operation>
LK_UNRECORDED inline auto exchange_by(Value* address, Operation operation) {
    using Word = typename WordOf<sizeof(Value)>::Type;
    Word* word = reinterpret_cast<Word*>(address);
    Word seen = __atomic_load_n(word, __ATOMIC_RELAXED);
    for (;;) {
        Value old;
        __builtin_memcpy(&old, &seen, sizeof old);
        Value fresh = operation(old);
        Word next;
        __builtin_memcpy(&next, &fresh, sizeof next);
        if (__atomic_compare_exchange_n(word, &seen, next, true, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)) {
            return old;
        }
    }
}

template <class Value, class Operation>
LK_OPAQUE Value exchange_opaque(Value* address, Operation operation) {
    return exchange_by(address, operation);
}

enum class AtomicKind { changes, compares, exchanges };

// compares: it may leave the word as it is, whatever was read before. A plain read with one of these after it is no race.
template <AtomicKind kind = AtomicKind::changes, class Value, class Operation>
LK_INLINE Value atomic(Value* address, Operation operation) {
#ifdef __SANITIZE_THREAD__
    switch (kind) {
        case AtomicKind::changes: lk_atomic(address, sizeof(Value)); break;
        case AtomicKind::compares: lk_compare(address, sizeof(Value)); break;
        case AtomicKind::exchanges: lk_exchange(address, sizeof(Value)); break;
    }
    return exchange_opaque(address, operation);
#else
    return exchange_by(address, operation);
#endif
}

// An operation that changes nothing is how threads wait for each other (a lock that is taken, a flag not yet set): as threads
// of a block take turns, the others must get theirs.
template <AtomicKind kind = AtomicKind::changes, class Value, class Operation>
LK_INLINE Value polling_atomic(Value* address, Operation operation) {
    Value old = atomic<kind>(address, operation);
    if (__builtin_expect(operation(old) == old, 0)) {
        lk_yield();
    }
    return old;
}

template <class Value>
struct Same {
    using Type = Value;
};

// The type of a parameter that the address alone decides: atomicAdd(&float_sum, 1) adds 1.0f.
template <class Value>
using Given = typename Same<Value>::Type;

template <class Value, class... Allowed>
constexpr bool is_one_of = (std::is_same<Value, Allowed>::value || ...);

using Unsigned64 = unsigned long long;

// Types outside C++ that atomicAdd takes (half and the like) say so here.
template <class Value>
struct AddsAtomically {
    static constexpr bool value = is_one_of<Value, int, unsigned, Unsigned64, float, double>;
};

}  // namespace lk

// An operation of the device, and its _block and _system twins, which differ in scope only.
#define LK_ATOMIC(name, allowed, types, kind, result)                             \
    template <class Value>                                                        \
    LK_INLINE Value name(Value* address, lk::Given<Value> value) {                \
        static_assert(allowed, #name " takes the address of " types);             \
        return lk::kind(address, [=](Value old) LK_UNRECORDED { return Value(result); });       \
    }                                                                             \
    template <class Value>                                                        \
    LK_INLINE Value name##_block(Value* address, lk::Given<Value> value) {        \
        return name(address, value);                                              \
    }                                                                             \
    template <class Value>                                                        \
    LK_INLINE Value name##_system(Value* address, lk::Given<Value> value) {       \
        return name(address, value);                                              \
    }

// clang-format off
LK_ATOMIC(atomicAdd, lk::AddsAtomically<Value>::value, "int, unsigned, unsigned long long, float, double, or half, bfloat16 and their pairs", polling_atomic, old + value)
LK_ATOMIC(atomicSub, (lk::is_one_of<Value, int, unsigned>), "int or unsigned", atomic, old - value)
LK_ATOMIC(atomicExch, (lk::is_one_of<Value, int, unsigned, lk::Unsigned64, float>), "int, unsigned, unsigned long long or float", polling_atomic<lk::AtomicKind::exchanges>, value)
LK_ATOMIC(atomicMin, (lk::is_one_of<Value, int, unsigned, lk::Unsigned64, long long>), "int, unsigned, long long or unsigned long long", atomic<lk::AtomicKind::compares>, value < old ? value : old)
LK_ATOMIC(atomicMax, (lk::is_one_of<Value, int, unsigned, lk::Unsigned64, long long>), "int, unsigned, long long or unsigned long long", atomic<lk::AtomicKind::compares>, old < value ? value : old)
LK_ATOMIC(atomicInc, (lk::is_one_of<Value, unsigned>), "unsigned", atomic, old >= value ? 0 : old + 1)
LK_ATOMIC(atomicDec, (lk::is_one_of<Value, unsigned>), "unsigned", atomic, old == 0 || old > value ? value : old - 1)
LK_ATOMIC(atomicAnd, (lk::is_one_of<Value, int, unsigned, lk::Unsigned64>), "int, unsigned or unsigned long long", atomic, old & value)
LK_ATOMIC(atomicOr, (lk::is_one_of<Value, int, unsigned, lk::Unsigned64>), "int, unsigned or unsigned long long", polling_atomic, old | value)
LK_ATOMIC(atomicXor, (lk::is_one_of<Value, int, unsigned, lk::Unsigned64>), "int, unsigned or unsigned long long", atomic, old ^ value)
// clang-format on

template <class Value>
LK_INLINE Value atomicCAS(Value* address, lk::Given<Value> expected, lk::Given<Value> value) {
    static_assert(lk::is_one_of<Value, int, unsigned, lk::Unsigned64, unsigned short>,
                  "atomicCAS takes the address of int, unsigned, unsigned long long or unsigned short");
    return lk::polling_atomic<lk::AtomicKind::compares>(address, [=](Value old) LK_UNRECORDED { return old == expected ? value : old; });
}

template <class Value>
LK_INLINE Value atomicCAS_block(Value* address, lk::Given<Value> expected, lk::Given<Value> value) {
    return atomicCAS(address, expected, value);
}

template <class Value>
LK_INLINE Value atomicCAS_system(Value* address, lk::Given<Value> expected, lk::Given<Value> value) {
    return atomicCAS(address, expected, value);
}

namespace lk {

// Each member is added atomically; the whole is not one atomic operation, and is one access.
template <class Vector, int members>
LK_OPAQUE auto add_members(Vector* address, Vector value) {
    float* numbers = reinterpret_cast<float*>(address);
    const float* more = reinterpret_cast<const float*>(&value);
    Vector old;
    for (int i = 0; i < members; ++i) {
        reinterpret_cast<float*>(&old)[i] = exchange_by(numbers + i, [=](float number) LK_UNRECORDED { return number + more[i]; });
    }
    return old;
}

template <class Vector, int members>
LK_INLINE auto atomic_add_members(Vector* address, Vector value) {
#ifdef __SANITIZE_THREAD__
    lk_atomic(address, sizeof(Vector));
#endif
    return add_members<Vector, members>(address, value);
}

}  // namespace lk

LK_INLINE float2 atomicAdd(float2* address, float2 value) { return lk::atomic_add_members<float2, 2>(address, value); }

LK_INLINE float4 atomicAdd(float4* address, float4 value) { return lk::atomic_add_members<float4, 4>(address, value); }
