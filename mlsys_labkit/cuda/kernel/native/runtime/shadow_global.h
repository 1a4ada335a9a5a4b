// shadow_global.h: the threads that accessed each byte of device memory, for races between any two threads of a launch.
//
// Shadows are kept from launch to launch and never cleared: cells of earlier launches are known by their segments. The address
// ranges are reserved when a buffer is first seen; memory is taken where a kernel reads (8 bytes a word), where it writes (as
// much again), where it updates atomically (the same), and where it does so byte by byte (8 bytes a byte).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "address_range.h"
#include "shadow_cell.h"

namespace lk {

class GlobalShadow : public AddressRange {
public:
    explicit GlobalShadow(AddressRange buffer);
    ~GlobalShadow();
    GlobalShadow(const GlobalShadow&) = delete;
    GlobalShadow& operator=(const GlobalShadow&) = delete;

    void clear();

    // The range lies within the buffer.
    Clash access(const Present& now, uint64_t address, uint32_t bytes, const Sites& sites);

private:
    using Cell64 = std::atomic<uint64_t>;
    struct PlaneCells;
    // All planes of a word are split together, the first one first.
    bool is_split(uint64_t word) const { return words_[kWrites][word].load(std::memory_order_relaxed) == kSplit; }
    void look_at_bytes(const Present& now, uint64_t word, uint64_t first, uint64_t end, const Sites& sites, Clash& clash);

    uint64_t origin_;  // begin, rounded down to a word
    void* reservation_ = nullptr;
    uint64_t reserved_bytes_ = 0;
    Cell64* words_[kPlanes] = {};
    Cell64* bytes_[kPlanes] = {};
    std::atomic<uint32_t> atomics_segment_{0};  // of the last atomic in the buffer
};

// The shadows of this process, of which buffers come and go between launches.
class GlobalShadows {
public:
    static GlobalShadows& instance();
    // Before a launch: makes what is missing, forgets what is gone. buffers: sorted. clear: segments are numbered afresh.
    void begin_launch(const std::vector<AddressRange>& buffers, bool clear);
    // After a launch: gives memory back when it is more than a machine can spare.
    void end_launch();
    // The one that holds this byte, or nullptr.
    GlobalShadow* find(uint64_t address) const { return find_range(shadows_, address); }

private:
    std::vector<std::unique_ptr<GlobalShadow>> shadows_;  // sorted
};

}  // namespace lk
