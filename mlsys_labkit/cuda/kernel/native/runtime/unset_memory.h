// unset_memory.h: the contents of device memory that nobody has written, by which a read of it is recognised.
//
// Each word has a value of its own, which depends on its place in its page: a signalling NaN, so that no data has it by chance
// (32 random bits do once in 2^32 words). Mirrored in kernel/arguments/device_array.py.
#pragma once

#include <cstdint>
#include <cstring>

namespace lk {

inline uint32_t unset_word(uint64_t address) {
    return 0xffa00000u | static_cast<uint32_t>(address >> 2 & 1023) * 0x9e3779b1u >> 11;
}

// begin: aligned to a word.
inline void fill_unset(void* begin, uint64_t bytes) {
    const uint64_t first = reinterpret_cast<uint64_t>(begin);
    auto* words = static_cast<uint32_t*>(begin);
    for (uint64_t i = 0; i < bytes / 4; i++) words[i] = unset_word(first + 4 * i);
}

// True if a word with a byte of the range is as fill_unset left it.
inline bool is_unset(uint64_t address, uint32_t bytes) {
    for (uint64_t word = address & ~uint64_t{3}; word < address + bytes; word += 4) {
        uint32_t value;
        std::memcpy(&value, reinterpret_cast<const void*>(word), sizeof value);
        if (value == unset_word(word)) return true;
    }
    return false;
}

}  // namespace lk
