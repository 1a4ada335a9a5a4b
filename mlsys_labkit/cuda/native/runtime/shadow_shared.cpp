// shadow_shared.cpp: see shadow_shared.h.
#include "shadow_shared.h"

#include <new>

namespace lk {

namespace {

// A block runs on one thread of the operating system: no atomics.
struct PlainSlot {
    uint64_t& bits;
    uint64_t load() const { return bits; }
    template <class F>
    uint64_t update(const F& change) const {
        const uint64_t before = bits;
        bits = change(before);
        return before;
    }
};

}  // namespace

SharedShadow::Array SharedShadow::make(uint64_t count) {
    void* zeros = std::calloc(count + 1, sizeof(Cells));  // fresh pages: what is not touched takes no memory
    if (!zeros) throw std::bad_alloc();
    return Array(static_cast<Cells*>(zeros));
}

SharedShadow::SharedShadow(uint64_t bytes) : words_(make(bytes / 4 + 1)), bytes_(make(bytes + 4)) {}

void SharedShadow::split(uint64_t word) {
    if (words_[word].write == kSplit) return;
    for (uint64_t byte = 4 * word; byte < 4 * word + 4; byte++) bytes_[byte] = words_[word];
    words_[word].write = kSplit;
}

void SharedShadow::unite(uint64_t word) {
    const Cells& first = bytes_[4 * word];
    for (uint64_t byte = 4 * word + 1; byte < 4 * word + 4; byte++) {
        if (bytes_[byte].write != first.write || bytes_[byte].read != first.read) return;
    }
    words_[word] = first;
}

Clash SharedShadow::access(const Present& now, uint64_t offset, uint32_t bytes, const Sites& sites) {
    const SameBlock where{now.order};
    const auto exempt = [&](const Cell& past) { return is_atomic(now.op) && is_atomic(sites.op(past.site)); };
    Clash clash;
    const auto look_at = [&](Cells& cells) {
        look(where, PlainSlot{cells.write}, PlainSlot{cells.read}, now, exempt, clash);
    };
    const uint64_t end = offset + bytes;
    for (uint64_t word = offset / 4; word * 4 < end; word++) {
        const bool whole = word * 4 >= offset && word * 4 + 4 <= end;
        if (whole && words_[word].write != kSplit) {
            look_at(words_[word]);
            continue;
        }
        split(word);
        for (uint64_t byte = word * 4; byte < word * 4 + 4; byte++) {
            if (byte >= offset && byte < end) look_at(bytes_[byte]);
        }
        if (whole) unite(word);
    }
    return clash;
}

}  // namespace lk
