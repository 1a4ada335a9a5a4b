// unset_memory.h: the contents of device memory that nobody has written, by which a read of it is recognised.
//
// Each word has a value of its own, which depends on its place in its page: a signalling NaN, so that no data has it by chance
// (32 random bits do once in 2^32 words). Positive: the last byte of a pixel is often 255. Mirrored in
// kernel/arguments/device_array.py.
#pragma once

#include <cstdint>
#include <cstring>

namespace lk {

inline uint32_t unset_word(uint64_t address) {
    return 0x7fa00000u | static_cast<uint32_t>(address >> 2 & 1023) * 0x9e3779b1u >> 11;
}

// begin: aligned to a word.
inline void fill_unset(void* begin, uint64_t bytes) {
    const uint64_t first = reinterpret_cast<uint64_t>(begin);
    auto* words = static_cast<uint32_t*>(begin);
    for (uint64_t i = 0; i < bytes / 4; i++) words[i] = unset_word(first + 4 * i);
}

// True if each word with a byte of the range is as fill_unset left it: a struct's padding is copied with it, and never set.
inline bool is_unset(uint64_t address, uint32_t bytes) {
    for (uint64_t word = address & ~uint64_t{3}; word < address + bytes; word += 4) {
        uint32_t value;
        std::memcpy(&value, reinterpret_cast<const void*>(word), sizeof value);
        if (value != unset_word(word)) return false;
    }
    return true;
}

// Before a store. A word that is set in part counts as set, although the byte that it gets may be the one that it holds.
inline void set_in_part(uint64_t address, uint32_t bytes) {
    for (const uint64_t edge : {address, address + bytes}) {
        const uint64_t word = edge & ~uint64_t{3};
        uint32_t unset = unset_word(word);
        if (edge == word) continue;
        __atomic_compare_exchange_n(reinterpret_cast<uint32_t*>(word), &unset, ~unset, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    }
}

}  // namespace lk
