// touched.cpp: see touched.h.
#include "touched.h"

#include <algorithm>
#include <new>

namespace lk {

Bitmap::Bitmap(uint64_t bits) : bits_(bits) {
    void* zeros = std::calloc(bits / 64 + 1, sizeof(uint64_t));  // fresh pages: what is not touched takes no memory
    if (!zeros) throw std::bad_alloc();
    words_.reset(static_cast<std::atomic<uint64_t>*>(zeros));
}

// Most bytes are touched again and again: look before writing, so that threads do not take the line from each other.
void Bitmap::set_in_word(uint64_t word, uint64_t mask) {
    if ((words_[word].load(std::memory_order_relaxed) & mask) == mask) return;
    words_[word].fetch_or(mask, std::memory_order_relaxed);
}

void Bitmap::set(uint64_t first, uint64_t count) {
    while (count) {
        const uint64_t bit = first % 64;
        const uint64_t here = std::min(count, 64 - bit);
        const uint64_t ones = here == 64 ? ~uint64_t{0} : (uint64_t{1} << here) - 1;
        set_in_word(first / 64, ones << bit);
        first += here;
        count -= here;
    }
}

uint64_t Bitmap::count() const {
    uint64_t count = 0;
    for (uint64_t word = 0; word <= bits_ / 64; word++) {
        count += static_cast<uint64_t>(__builtin_popcountll(words_[word].load(std::memory_order_relaxed)));
    }
    return count;
}

bool Bitmap::meets(const Bitmap& other) const {
    for (uint64_t word = 0; word <= bits_ / 64; word++) {
        if (words_[word].load(std::memory_order_relaxed) & other.words_[word].load(std::memory_order_relaxed)) return true;
    }
    return false;
}

void Bitmap::append_to(std::vector<unsigned char>& bytes) const {
    for (uint64_t byte = 0; byte < (bits_ + 7) / 8; byte++) {
        bytes.push_back(static_cast<unsigned char>(words_[byte / 8].load(std::memory_order_relaxed) >> 8 * (byte % 8)));
    }
}

}  // namespace lk
