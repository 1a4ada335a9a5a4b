// sites.h: a short number for each instruction of the kernel that accesses memory, as the shadows' cells store it.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "records.h"

namespace lk {

class Sites {
public:
    static constexpr uint32_t kUnknown = 0;  // beyond the first 4095 that a launch meets
    static constexpr uint32_t kMost = 4096;

    Sites(uint64_t text_begin, uint64_t text_bytes) : text_begin_(text_begin), numbers_(2 * text_bytes + 2), sites_(kMost) {}

    uint32_t number(uint64_t pc, Op op) {
        const uint64_t place = place_of(pc, op == Op::load || op == Op::volatile_load);
        if (place >= numbers_.size()) return kUnknown;
        const uint32_t known = numbers_[place].load(std::memory_order_acquire);
        return known ? known : add(place, pc, op);
    }
    uint64_t pc(uint32_t site) const { return sites_[site].pc; }
    Op op(uint32_t site) const { return sites_[site].op; }

    // A plain read that a compare-and-swap, minimum or maximum of the same thread on the same word followed: the loop
    // `old = *p; while (atomicCAS(p, old, ...) != old)`, or a test before an atomic. The atomic decides, whatever was read.
    void mark_rechecked(uint32_t site) { sites_[site].rechecked.store(true, std::memory_order_relaxed); }
    bool rechecked(uint64_t pc) const {
        const uint64_t place = place_of(pc, true);
        return place < numbers_.size() && sites_[numbers_[place]].rechecked.load(std::memory_order_relaxed);
    }

private:
    struct Site {
        uint64_t pc = 0;
        Op op = Op::load;
        std::atomic<bool> rechecked{false};
    };

    // A call of memcpy reads and writes at one place.
    uint64_t place_of(uint64_t pc, bool loads) const { return 2 * (pc - text_begin_) + (loads ? 1 : 0); }

    uint32_t add(uint64_t place, uint64_t pc, Op op) {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (numbers_[place] || count_ == kMost) return numbers_[place];
        sites_[count_].pc = pc;
        sites_[count_].op = op;
        numbers_[place].store(static_cast<uint16_t>(count_), std::memory_order_release);
        return count_++;
    }

    uint64_t text_begin_;
    std::vector<std::atomic<uint16_t>> numbers_;  // by place
    std::vector<Site> sites_;
    uint32_t count_ = 1;
    std::mutex mutex_;
};

// Of each thread of a block, where its last few plain reads went.
class RecentReads {
public:
    explicit RecentReads(uint32_t threads) : reads_(threads) {}

    void add(uint32_t thread, uint64_t address, uint32_t site) {
        Thread& own = reads_[thread];
        own.addresses[own.next] = address;
        own.sites[own.next] = static_cast<uint16_t>(site);
        own.next = (own.next + 1) % kKept;
    }
    // A compare-and-swap, minimum or maximum of the thread on a word that it has read: see Sites::mark_rechecked.
    void recheck(uint32_t thread, uint64_t address, Sites& sites) const {
        const Thread& own = reads_[thread];
        for (uint32_t i = 0; i < kKept; i++) {
            if (own.addresses[i] == address) sites.mark_rechecked(own.sites[i]);
        }
    }

private:
    static constexpr uint32_t kKept = 8;
    struct Thread {
        uint64_t addresses[kKept] = {};
        uint16_t sites[kKept] = {};
        uint32_t next = 0;
    };
    std::vector<Thread> reads_;
};

}  // namespace lk
