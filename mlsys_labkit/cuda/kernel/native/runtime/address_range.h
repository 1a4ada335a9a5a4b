// address_range.h: bytes of memory that lie behind one another.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <memory>
#include <vector>

namespace lk {

struct AddressRange {
    uint64_t begin = 0;
    uint64_t end = 0;  // one past the last byte
    bool holds(uint64_t address, uint64_t bytes) const {
        return address - begin < end - begin && bytes <= end - address;
    }
};

// The range that holds this byte, of ranges that are sorted by address and do not overlap; nullptr where none does.
template <class Range>
Range* find_range(const std::vector<std::unique_ptr<Range>>& sorted, uint64_t address) {
    const auto after = std::upper_bound(sorted.begin(), sorted.end(), address,
                                        [](uint64_t at, const auto& range) { return at < range->begin; });
    return after != sorted.begin() && address < (*std::prev(after))->end ? std::prev(after)->get() : nullptr;
}

}  // namespace lk
