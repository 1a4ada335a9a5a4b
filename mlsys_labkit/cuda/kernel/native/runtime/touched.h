// touched.h: which bytes of which buffers a launch read and wrote: one bit a byte.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "address_range.h"

namespace lk {

class Bitmap {
public:
    explicit Bitmap(uint64_t bits);
    // From any thread.
    void set(uint64_t first, uint64_t count);
    uint64_t count() const;
    bool holds(uint64_t bit) const { return words_[bit / 64].load(std::memory_order_relaxed) >> bit % 64 & 1; }
    // Whether some bit is set in both; they are as long as each other.
    bool meets(const Bitmap& other) const;
    // The bytes, with the least significant bit first.
    void append_to(std::vector<unsigned char>& bytes) const;

private:
    struct Free {
        void operator()(std::atomic<uint64_t>* words) const { std::free(words); }
    };
    void set_in_word(uint64_t word, uint64_t mask);

    uint64_t bits_;
    std::unique_ptr<std::atomic<uint64_t>[], Free> words_;
};

struct TouchedBuffer : AddressRange {
    explicit TouchedBuffer(AddressRange buffer) : AddressRange(buffer), read(end - begin), written(end - begin) {}

    Bitmap read;
    Bitmap written;
};

}  // namespace lk
