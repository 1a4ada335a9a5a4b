// memory.h: PTX's loads, stores and asynchronous copies: one recorded access each.
#pragma once

#include <cuda_pipeline_primitives.h>

#include "lk/ptx/registers.h"
#include "lk/sync/atomic.h"

namespace lk {
namespace ptx {

// ordered: .acquire and .release.
enum class Access { plain, relaxed, ordered };

template <class Value, int count, Access access>
LK_INLINE Value load(const void* from) {
    if constexpr (access == Access::plain) {
        return *static_cast<const Value*>(from);
    } else {
        return lk::AtomicOperations<Value>::load(static_cast<const Value*>(from));
    }
}

template <class Value, Access access>
LK_INLINE void store(void* to, Value value) {
    if constexpr (access == Access::plain) {
        *static_cast<Value*>(to) = value;
    } else {
        const auto order = access == Access::ordered ? std::memory_order_release : std::memory_order_relaxed;
        lk::AtomicOperations<Value>::store(static_cast<Value*>(to), value, order);
    }
}

// A vector is one access of all its bytes, and lies in words here.
template <class Value, int count>
LK_INLINE uint4 load_vector(const void* from) {
    constexpr int bytes = count * sizeof(Value);
    static_assert(bytes <= 16, "a PTX vector has at most 16 bytes");
    if constexpr (bytes == 16) {
        return *static_cast<const uint4*>(from);
    } else if constexpr (bytes == 8) {
        const uint2 words = *static_cast<const uint2*>(from);
        return make_uint4(words.x, words.y, 0, 0);
    } else if constexpr (bytes == 4) {
        return make_uint4(*static_cast<const unsigned*>(from), 0, 0, 0);
    } else {
        return make_uint4(*static_cast<const unsigned short*>(from), 0, 0, 0);
    }
}

LK_INLINE unsigned word_of(const uint4& words, int i) {
    return i == 0 ? words.x : i == 1 ? words.y : i == 2 ? words.z : words.w;
}

template <class Value>
LK_INLINE Value part(const uint4& words, int i) {
    if constexpr (sizeof(Value) == 8) {
        return get<Value>((unsigned long long)word_of(words, 2 * i + 1) << 32 | word_of(words, 2 * i));
    } else if constexpr (sizeof(Value) == 4) {
        return get<Value>(word_of(words, i));
    } else {
        using Bits = std::conditional_t<sizeof(Value) == 2, unsigned short, unsigned char>;
        constexpr int in_word = 4 / sizeof(Value);
        return get<Value>(Bits(word_of(words, i / in_word) >> 8 * sizeof(Value) * (i % in_word)));
    }
}

template <class Value, int count, class... Values>
LK_INLINE void store_vector(void* to, Values... values) {
    constexpr int bytes = count * sizeof(Value);
    static_assert(bytes <= 16 && sizeof...(Values) == count, "a PTX vector has at most 16 bytes");
    using Bits = std::conditional_t<sizeof(Value) == 8, unsigned long long, std::conditional_t<sizeof(Value) == 4, unsigned, std::conditional_t<sizeof(Value) == 2, unsigned short, unsigned char>>>;
    unsigned __int128 all = 0;
    int at = 0;
    ((all |= (unsigned __int128)get<Bits>(values) << at, at += 8 * sizeof(Value)), ...);
    const uint4 words = make_uint4(unsigned(all), unsigned(all >> 32), unsigned(all >> 64), unsigned(all >> 96));
    if constexpr (bytes == 16) {
        *static_cast<uint4*>(to) = words;
    } else if constexpr (bytes == 8) {
        *static_cast<uint2*>(to) = make_uint2(words.x, words.y);
    } else if constexpr (bytes == 4) {
        *static_cast<unsigned*>(to) = words.x;
    } else {
        *static_cast<unsigned short*>(to) = static_cast<unsigned short>(words.x);
    }
}

// How many of a copy's bytes are set to zero: the last operand says how many are read, or, as a predicate, whether none is.
LK_INLINE unsigned zeros_of(unsigned bytes, bool ignored) { return ignored ? bytes : 0; }
template <class Integer>
LK_INLINE unsigned zeros_of(unsigned bytes, Integer read) {
    return bytes - unsigned(read);
}

LK_INLINE void copy_async(void* to, const void* from, unsigned bytes, unsigned zeros) {
    if (zeros == 0) {
        __pipeline_memcpy_async(to, from, bytes);
    } else if (zeros < bytes) {
        __pipeline_memcpy_async(to, from, bytes, zeros);
    } else {
        if (bytes == 16) {
            *static_cast<uint4*>(to) = make_uint4(0, 0, 0, 0);
        } else if (bytes == 8) {
            *static_cast<uint2*>(to) = make_uint2(0, 0);
        } else {
            *static_cast<unsigned*>(to) = 0;
        }
        lk::copy_started(to, bytes);
    }
}

}  // namespace ptx
}  // namespace lk
