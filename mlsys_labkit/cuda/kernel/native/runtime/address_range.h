// address_range.h: bytes of memory that lie behind one another.
#pragma once

#include <cstdint>

namespace lk {

struct AddressRange {
    uint64_t begin = 0;
    uint64_t end = 0;
    bool holds(uint64_t address, uint64_t bytes) const {
        return address - begin < end - begin && bytes <= end - address;
    }
};

}  // namespace lk
