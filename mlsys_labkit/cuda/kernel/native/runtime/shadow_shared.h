// shadow_shared.h: the threads that accessed each byte of a block's shared memory, for races and uninitialised reads.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>

#include "shadow_cell.h"

namespace lk {

// One per resident block. A word has one set of cells until its bytes are accessed apart; then each byte has its own.
// first: the first segment of the block whose shared memory it is, where other blocks of its cluster access it, too; else 0.
struct Neighbourhood {
    uint32_t first;
};

class SharedShadow {
public:
    explicit SharedShadow(uint64_t bytes);

    // offset: from the start of the thread-local segment; the range lies within it.
    Clash access(const Present& now, uint64_t offset, uint32_t bytes, const Sites& sites, Neighbourhood around);
    // A copy has written the bytes: what it is ordered with is known elsewhere.
    void forget(uint64_t offset, uint64_t bytes);
    // A copy reads them, which ends when its bulk group is waited for.
    void forget_reads(uint64_t offset, uint64_t bytes);

private:
    struct Cells {
        uint64_t plane[kPlanes];
    };
    struct Free {
        void operator()(Cells* cells) const { std::free(cells); }
    };
    using Array = std::unique_ptr<Cells[], Free>;
    static Array make(uint64_t count);
    void split(uint64_t word);
    void unite(uint64_t word);
    bool is_split(uint64_t word) const { return words_[word].plane[kWrites] == kSplit; }

    Array words_;
    Array bytes_;
    bool atomics_seen_ = false;
};

}  // namespace lk
