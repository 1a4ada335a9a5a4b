// request_cost.cpp: see request_cost.h.
#include "request_cost.h"

#include <algorithm>

namespace lk {

namespace {

struct ActiveAddresses {
    uint32_t count = 0;
    bool ascending = true;  // strictly
    bool uniform = true;
    uint64_t at[kLanes];
};

ActiveAddresses active_addresses(const WarpAccess& access) {
    ActiveAddresses active;
    for (uint32_t lanes = access.mask; lanes; lanes &= lanes - 1) {
        active.at[active.count++] = access.addresses[__builtin_ctz(lanes)];
    }
    for (uint32_t i = 1; i < active.count; i++) {
        active.ascending &= active.at[i] > active.at[i - 1];
        active.uniform &= active.at[i] == active.at[0];
    }
    return active;
}

uint32_t longest_run(const uint64_t* sorted, uint32_t count) {
    uint32_t longest = 1;
    for (uint32_t i = 1, run = 1; i < count; i++) {
        run = sorted[i] == sorted[i - 1] ? run + 1 : 1;
        longest = std::max(longest, run);
    }
    return longest;
}

// addresses: sorted. Lanes may overlap and may lie across a sector's edge.
uint32_t count_sectors(const uint64_t* sorted, uint32_t count, uint32_t bytes) {
    uint32_t sectors = 0;
    uint64_t next = 0;  // the first sector not yet counted
    for (uint32_t i = 0; i < count; i++) {
        const uint64_t first = std::max(sorted[i] / kSectorBytes, next);
        const uint64_t last = (sorted[i] + bytes - 1) / kSectorBytes;
        if (last < first) continue;
        sectors += static_cast<uint32_t>(last - first + 1);
        next = last + 1;
    }
    return sectors;
}

uint32_t count_distinct_bytes(const uint64_t* sorted, uint32_t count, uint32_t bytes) {
    uint32_t distinct = 0;
    uint64_t next = 0;
    for (uint32_t i = 0; i < count; i++) {
        const uint64_t first = std::max(sorted[i], next);
        next = sorted[i] + bytes;
        distinct += static_cast<uint32_t>(next - first);
    }
    return distinct;
}

// Distinct words of one group of lanes, bank by bank.
class Banks {
public:
    void touch(uint64_t word) {
        const uint32_t bank = word % kBanks;
        for (uint32_t i = 0; i < count_[bank]; i++) {
            if (words_[bank][i] == word) return;
        }
        words_[bank][count_[bank]++] = word;
        passes_ = std::max<uint32_t>(passes_, count_[bank]);
    }
    uint32_t passes() const { return passes_; }

private:
    static constexpr uint32_t kMostWords = 2 * kLanes;  // an unaligned lane of a full warp touches two words
    uint8_t count_[kBanks] = {};
    uint32_t passes_ = 0;
    uint64_t words_[kBanks][kMostWords];
};

// Whether no active lane n has another address than lane n ^ distance, if that is active.
bool in_pairs(const WarpAccess& access, uint32_t distance) {
    for (uint32_t lanes = access.mask; lanes; lanes &= lanes - 1) {
        const uint32_t lane = static_cast<uint32_t>(__builtin_ctz(lanes));
        const uint32_t other = lane ^ distance;
        if (access.mask >> other & 1 && access.addresses[other] != access.addresses[lane]) return false;
    }
    return true;
}

uint32_t group_wavefronts(const WarpAccess& access, uint32_t mask) {
    WarpAccess group = access;
    group.mask = mask;
    ActiveAddresses active = active_addresses(group);
    uint32_t passes = 1;
    const uint64_t span = active.at[active.count - 1] + access.bytes - active.at[0];
    const bool within_one_row = active.ascending && active.at[0] % kBankBytes + span <= kBanks * kBankBytes;
    if (!active.uniform && !within_one_row) {
        Banks banks;
        for (uint32_t i = 0; i < active.count; i++) {
            const uint64_t last = (active.at[i] + access.bytes - 1) / kBankBytes;
            for (uint64_t word = active.at[i] / kBankBytes; word <= last; word++) banks.touch(word);
        }
        passes = banks.passes();
    }
    if (!access.serialises) return passes;
    if (!active.ascending) std::sort(active.at, active.at + active.count);
    return std::max(passes, longest_run(active.at, active.count));
}

}  // namespace

GlobalCost global_cost(const WarpAccess& access) {
    ActiveAddresses active = active_addresses(access);
    GlobalCost cost{};
    if (!active.uniform && !active.ascending) std::sort(active.at, active.at + active.count);
    const uint32_t distinct = active.uniform ? 1 : active.count;
    cost.sectors = count_sectors(active.at, distinct, access.bytes);
    const uint32_t bytes = count_distinct_bytes(active.at, distinct, access.bytes);
    cost.ideal_sectors = (bytes + kSectorBytes - 1) / kSectorBytes;
    cost.same_address = active.ascending ? 1 : longest_run(active.at, active.count);
    return cost;
}

SharedCost shared_cost(const WarpAccess& access) {
    uint32_t lanes_together = access.bytes <= 4 ? kLanes : access.bytes <= 8 ? kLanes / 2 : kLanes / 4;
    if (lanes_together < kLanes && access.loads && (in_pairs(access, 1) || in_pairs(access, 2))) lanes_together *= 2;
    const uint32_t first_group = lanes_together == kLanes ? ~uint32_t{0} : (uint32_t{1} << lanes_together) - 1;
    SharedCost cost{};
    for (uint32_t lane = 0; lane < kLanes; lane += lanes_together) {
        const uint32_t mask = access.mask & (first_group << lane);
        if (!mask) continue;
        const uint32_t wavefronts = group_wavefronts(access, mask);
        cost.wavefronts += wavefronts;
        cost.ideal_wavefronts++;
        cost.worst = std::max(cost.worst, wavefronts);
    }
    return cost;
}

GlobalCost local_cost(const WarpAccess& access) {
    GlobalCost cost{};
    const uint32_t words = std::max(access.bytes / kBankBytes, uint32_t{1});
    for (uint32_t word = 0; word < words; word++) {
        uint64_t at[kLanes];
        for (uint32_t lanes = access.mask; lanes; lanes &= lanes - 1) {
            const uint32_t lane = static_cast<uint32_t>(__builtin_ctz(lanes));
            const uint64_t address = access.addresses[lane] + word * kBankBytes;
            at[lane] = (address / kBankBytes * kLanes + lane) * kBankBytes + address % kBankBytes;
        }
        cost.sectors += global_cost({access.mask, std::min(access.bytes, kBankBytes), false, access.loads, at}).sectors;
    }
    const uint32_t bytes = static_cast<uint32_t>(__builtin_popcount(access.mask)) * access.bytes;
    cost.ideal_sectors = (bytes + kSectorBytes - 1) / kSectorBytes;
    return cost;
}

uint32_t distinct_addresses(const WarpAccess& access) {
    ActiveAddresses active = active_addresses(access);
    std::sort(active.at, active.at + active.count);
    return static_cast<uint32_t>(std::unique(active.at, active.at + active.count) - active.at);
}

}  // namespace lk
