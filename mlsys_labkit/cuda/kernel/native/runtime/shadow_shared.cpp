// shadow_shared.cpp: see shadow_shared.h.
#include "shadow_shared.h"

#include <algorithm>
#include <new>

namespace lk {

namespace {

// A block runs on one thread of the operating system: no atomics.
struct PlainCells {
    uint64_t* plane;
    uint64_t load(Plane which) const { return plane[which]; }
    void store(Plane which, uint64_t bits) const { plane[which] = bits; }
    template <class F>
    uint64_t update(Plane which, const F& change) const {
        const uint64_t before = plane[which];
        plane[which] = change(before);
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
    if (is_split(word)) return;
    std::fill_n(&bytes_[4 * word], 4, words_[word]);
    words_[word].plane[kWrites] = kSplit;
}

void SharedShadow::unite(uint64_t word) {
    const Cells* bytes = &bytes_[4 * word];
    const auto same = [&](const Cells& each) { return std::equal(each.plane, each.plane + kPlanes, bytes[0].plane); };
    if (std::all_of(bytes, bytes + 4, same)) words_[word] = bytes[0];
}

Clash SharedShadow::access(const Present& now, uint64_t offset, uint32_t bytes, const Sites& sites, Neighbourhood around) {
    Clash clash;
    atomics_seen_ |= is_atomic(now.op);
    const auto seen = [this] { return atomics_seen_; };
    const auto look_at = [&](Cells& cells) {
        if (around.first) look(SameCluster{{now.order}, around.first}, PlainCells{cells.plane}, now, sites, seen, clash);
        else look(SameBlock{now.order}, PlainCells{cells.plane}, now, sites, seen, clash);
    };
    const uint64_t end = offset + bytes;
    for (uint64_t word = offset / 4; word * 4 < end; word++) {
        const bool whole = word * 4 >= offset && word * 4 + 4 <= end;
        if (whole && !is_split(word)) {
            look_at(words_[word]);
            continue;
        }
        split(word);
        for (uint64_t byte = std::max(offset, word * 4); byte < std::min(end, word * 4 + 4); byte++) look_at(bytes_[byte]);
        if (whole) unite(word);
    }
    return clash;
}

void SharedShadow::forget(uint64_t offset, uint64_t bytes) {
    for (uint64_t word = offset / 4; word * 4 < offset + bytes; word++) words_[word] = Cells{};
}

void SharedShadow::forget_reads(uint64_t offset, uint64_t bytes) {
    for (uint64_t word = offset / 4; word * 4 < offset + bytes; word++) {
        if (is_split(word)) unite(word);
        if (!is_split(word)) words_[word].plane[kReads] = words_[word].plane[kSecondReads] = 0;
    }
}

}  // namespace lk
