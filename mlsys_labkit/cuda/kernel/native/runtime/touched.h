// touched.h: which bytes of which buffers a launch read and wrote: one bit a byte.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "records.h"

namespace lk {

class Bitmap {
public:
    explicit Bitmap(uint64_t bits);
    // From any thread.
    void set(uint64_t first, uint64_t count);
    uint64_t count() const;
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

class TouchedBuffer {
public:
    TouchedBuffer(uint64_t begin, uint64_t end) : begin(begin), end(end), read(end - begin), written(end - begin) {}
    bool holds(uint64_t address, uint64_t bytes) const { return address - begin < end - begin && bytes <= end - address; }

    const uint64_t begin;
    const uint64_t end;
    Bitmap read;
    Bitmap written;
};

class Touched {
public:
    // In the order of their addresses.
    void add(uint64_t begin, uint64_t end) { buffers_.push_back(std::make_unique<TouchedBuffer>(begin, end)); }
    // The one that holds this byte, or nullptr.
    TouchedBuffer* find(uint64_t address) const;
    const std::vector<std::unique_ptr<TouchedBuffer>>& buffers() const { return buffers_; }

private:
    std::vector<std::unique_ptr<TouchedBuffer>> buffers_;
};

}  // namespace lk
