// atomic.h: cuda::atomic and cuda::atomic_ref: each operation is one recorded atomic, and is done in sequential order whatever
// order it asks for. An order that releases is a fence before it, for the race check.
#pragma once

#include <atomic>
#include <cstddef>
#include <type_traits>

#include "lk/atomics.h"
#include "lk/sync/scope.h"
#include "lk/synchronize.h"

namespace lk {

template <>
struct WordOf<1> {
    typedef uint8_t Type __attribute__((may_alias));
};

// What a thread did so far is published by the operation that follows.
LK_INLINE void fence_if_release(std::memory_order order) {
    if (order == std::memory_order_release || order == std::memory_order_acq_rel || order == std::memory_order_seq_cst) {
        __threadfence();
    }
}

template <class Value>
LK_OPAQUE Value load_word(const Value* address) {
    using Word = typename WordOf<sizeof(Value)>::Type;
    const Word word = __atomic_load_n(reinterpret_cast<const Word*>(address), __ATOMIC_SEQ_CST);
    Value value;
    __builtin_memcpy(&value, &word, sizeof value);
    return value;
}

template <class Value>
LK_UNRECORDED inline bool same_bytes(const Value& left, const Value& right) {
    return __builtin_memcmp(&left, &right, sizeof(Value)) == 0;
}

// The operations, on memory that belongs to others. A thread that loads in a loop waits for another one, which gets its turn.
template <class Value>
struct AtomicOperations {
    static_assert(std::is_trivially_copyable<Value>::value, "an atomic holds plain values");
    static_assert(sizeof(Value) == 1 || sizeof(Value) == 2 || sizeof(Value) == 4 || sizeof(Value) == 8,
                  "atomics of 1, 2, 4 and 8 bytes are simulated");

    static LK_INLINE Value load(const Value* at) {
#ifdef __SANITIZE_THREAD__
        lk_atomic_load(const_cast<Value*>(at), sizeof(Value));
#endif
        const Value value = load_word(at);
        lk_yield();
        return value;
    }

    static LK_INLINE void store(Value* at, Value value, std::memory_order order) {
        fence_if_release(order);
#ifdef __SANITIZE_THREAD__
        lk_atomic_store(at, sizeof(Value));
#endif
        exchange_opaque(at, [=](Value) LK_UNRECORDED { return value; });
    }

    template <class Operation>
    static LK_INLINE Value change(Value* at, std::memory_order order, Operation operation) {
        fence_if_release(order);
        return atomic(at, operation);
    }

    static LK_INLINE bool compare_exchange(Value* at, Value& expected, Value wanted, std::memory_order order) {
        fence_if_release(order);
        const Value before = expected;
        expected = atomic<AtomicKind::compares>(at, [=](Value old) LK_UNRECORDED { return same_bytes(old, before) ? wanted : old; });
        if (same_bytes(expected, before)) {
            return true;
        }
        lk_yield();
        return false;
    }
};

// Members of atomic and atomic_ref alike. Derived::lk_address() says where the value is.
template <class Derived, class Value>
class AtomicMembers {
    using Operations = AtomicOperations<Value>;
    using Order = std::memory_order;
    static constexpr Order strictest = std::memory_order_seq_cst;
    using Difference = typename std::conditional<std::is_pointer<Value>::value, ptrdiff_t, Value>::type;

    LK_INLINE Value* at() const { return static_cast<const Derived*>(this)->lk_address(); }
    LK_INLINE const AtomicMembers& plain() const volatile { return const_cast<const AtomicMembers&>(*this); }

public:
    using value_type = Value;
    static constexpr bool is_always_lock_free = true;

    LK_INLINE bool is_lock_free() const { return true; }
    LK_INLINE Value load(Order = strictest) const { return Operations::load(at()); }
    LK_INLINE Value load(Order = strictest) const volatile { return Operations::load(plain().at()); }
    LK_INLINE operator Value() const { return load(); }
    LK_INLINE void store(Value value, Order order = strictest) const { Operations::store(at(), value, order); }
    LK_INLINE void store(Value value, Order order = strictest) const volatile { Operations::store(plain().at(), value, order); }
    LK_INLINE Value exchange(Value value, Order order = strictest) const {
        return Operations::change(at(), order, [=](Value) LK_UNRECORDED { return value; });
    }

    LK_INLINE bool compare_exchange_strong(Value& expected, Value value, Order order = strictest) const {
        return Operations::compare_exchange(at(), expected, value, order);
    }
    LK_INLINE bool compare_exchange_strong(Value& expected, Value value, Order order, Order) const {
        return Operations::compare_exchange(at(), expected, value, order);
    }
    LK_INLINE bool compare_exchange_weak(Value& expected, Value value, Order order = strictest) const {
        return Operations::compare_exchange(at(), expected, value, order);
    }
    LK_INLINE bool compare_exchange_weak(Value& expected, Value value, Order order, Order) const {
        return Operations::compare_exchange(at(), expected, value, order);
    }

    LK_INLINE Value fetch_add(Difference value, Order order = strictest) const {
        return Operations::change(at(), order, [=](Value old) LK_UNRECORDED { return Value(old + value); });
    }
    LK_INLINE Value fetch_sub(Difference value, Order order = strictest) const {
        return Operations::change(at(), order, [=](Value old) LK_UNRECORDED { return Value(old - value); });
    }
    LK_INLINE Value fetch_and(Value value, Order order = strictest) const {
        return Operations::change(at(), order, [=](Value old) LK_UNRECORDED { return Value(old & value); });
    }
    LK_INLINE Value fetch_or(Value value, Order order = strictest) const {
        return Operations::change(at(), order, [=](Value old) LK_UNRECORDED { return Value(old | value); });
    }
    LK_INLINE Value fetch_xor(Value value, Order order = strictest) const {
        return Operations::change(at(), order, [=](Value old) LK_UNRECORDED { return Value(old ^ value); });
    }
    LK_INLINE Value fetch_min(Value value, Order order = strictest) const {
        return Operations::change(at(), order, [=](Value old) LK_UNRECORDED { return value < old ? value : old; });
    }
    LK_INLINE Value fetch_max(Value value, Order order = strictest) const {
        return Operations::change(at(), order, [=](Value old) LK_UNRECORDED { return old < value ? value : old; });
    }

    LK_INLINE Value operator++() const { return fetch_add(1) + 1; }
    LK_INLINE Value operator--() const { return fetch_sub(1) - 1; }
    LK_INLINE Value operator++(int) const { return fetch_add(1); }
    LK_INLINE Value operator--(int) const { return fetch_sub(1); }
    LK_INLINE Value operator+=(Difference value) const { return fetch_add(value) + value; }
    LK_INLINE Value operator-=(Difference value) const { return fetch_sub(value) - value; }
    LK_INLINE Value operator&=(Value value) const { return fetch_and(value) & value; }
    LK_INLINE Value operator|=(Value value) const { return fetch_or(value) | value; }
    LK_INLINE Value operator^=(Value value) const { return fetch_xor(value) ^ value; }

    LK_INLINE void wait(Value old, Order = strictest) const {
        while (same_bytes(load(), old)) {
        }
    }
    LK_INLINE void notify_one() const {}
    LK_INLINE void notify_all() const {}
};

}  // namespace lk

namespace cuda {

template <class Value, thread_scope Scope = thread_scope_system>
class atomic : public lk::AtomicMembers<atomic<Value, Scope>, Value> {
public:
    atomic() = default;
    constexpr atomic(Value value) : lk_value(value) {}
    atomic(const atomic&) = delete;
    atomic& operator=(const atomic&) = delete;
    LK_INLINE Value operator=(Value value) {
        this->store(value);
        return value;
    }

    LK_INLINE Value* lk_address() const { return const_cast<Value*>(&lk_value); }

private:
    alignas(sizeof(Value)) Value lk_value;
};

template <class Value, thread_scope Scope = thread_scope_system>
class atomic_ref : public lk::AtomicMembers<atomic_ref<Value, Scope>, Value> {
public:
    static constexpr size_t required_alignment = sizeof(Value);

    LK_INLINE explicit atomic_ref(Value& value) : lk_value(&value) {}
    atomic_ref(const atomic_ref&) = default;
    atomic_ref& operator=(const atomic_ref&) = delete;
    LK_INLINE Value operator=(Value value) const {
        this->store(value);
        return value;
    }

    LK_INLINE Value* lk_address() const { return lk_value; }

private:
    Value* lk_value;
};

using std::memory_order;
using std::memory_order_acq_rel;
using std::memory_order_acquire;
using std::memory_order_consume;
using std::memory_order_relaxed;
using std::memory_order_release;
using std::memory_order_seq_cst;

LK_INLINE void atomic_thread_fence(std::memory_order order, thread_scope = thread_scope_system) {
    if (order != std::memory_order_relaxed) {
        __threadfence();
    }
}

LK_INLINE void atomic_signal_fence(std::memory_order) { __asm__ volatile("" ::: "memory"); }

namespace std {  // cuda::std

using namespace ::std;

template <class Value>
using atomic = ::cuda::atomic<Value, ::cuda::thread_scope_system>;
template <class Value>
using atomic_ref = ::cuda::atomic_ref<Value, ::cuda::thread_scope_system>;
using ::cuda::atomic_signal_fence;
using ::cuda::atomic_thread_fence;

}  // namespace std

}  // namespace cuda
