// findings.h: what is wrong with a launch, each thing once, from any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "records.h"

namespace lk {

// Unset members say that there is none.
FindingRecord new_finding(FindingKind kind, uint64_t block, uint64_t thread);

class Findings {
public:
    static constexpr size_t kMost = 64;

    // One entry for each kind and pair of places, whichever of the two was met first; a repetition only counts.
    // Takes a lock: not for signal handlers.
    void report(const FindingRecord& finding);

    // Adds to the count of what has been reported; false when it has not been.
    bool count_again(const FindingRecord& finding);

    // For signal handlers: gives up, and returns false, when the lock is taken.
    bool try_report(const FindingRecord& finding);

    bool empty() const { return reported_.load(std::memory_order_relaxed) == 0; }
    const std::vector<FindingRecord>& records() const { return records_; }
    uint64_t dropped() const { return dropped_; }

private:
    FindingRecord* known(const FindingRecord& ordered);
    void add(const FindingRecord& finding);

    std::mutex mutex_;
    std::vector<FindingRecord> records_;
    std::atomic<uint64_t> reported_{0};
    uint64_t dropped_ = 0;
};

}  // namespace lk
