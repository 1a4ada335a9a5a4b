// device_memory.h: device memory: which addresses a kernel may touch, and which buffer each belongs to.
//
// Around every buffer lie unmapped addresses, 8 GB of them where there is room, so that any int index into it either hits
// the buffer or faults. Data ends as close to the upper guard as cudaMalloc's alignment of 256 bytes allows.
//
// In the worker, buffers are ranges of an arena that the notebook owns and maps too (open_arena, attach, detach). A whole
// program has no notebook and takes its own (allocate, release).
//
// Attaching and allocating are not safe while a kernel runs; find and nearest are, from any thread and in a signal handler.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "address_range.h"

namespace lk {

using Buffer = AddressRange;  // of the bytes that were asked for

class DeviceMemory {
public:
    // Reserves bytes of addresses, at address if it is not 0 (so that pointers stored in buffers outlive the process).
    // False when the addresses are taken. Behind them, in the same file, lies the kernels' own heap (device_heap.h).
    bool open_arena(int file, size_t bytes, uint64_t address);
    uint64_t arena_address() const { return arena_address_; }
    AddressRange arena() const { return {arena_address_, arena_address_ + arena_bytes_}; }

    // A buffer of the arena, by its offset from the arena's start. False when the kernel has no mapping left to give.
    bool attach(uint64_t offset, size_t bytes);
    void detach(uint64_t offset);

    // nullptr when memory or addresses run out. The content is what the kernel gives: zeros.
    void* allocate(size_t bytes);
    // False when nothing that allocate returned begins here.
    bool release(void* data);

    // The buffer that holds this byte, or nullptr.
    const Buffer* find(uint64_t address) const;
    // The buffer that this address is fewest bytes away from, to explain a fault; nullptr when there is none.
    const Buffer* nearest(uint64_t address) const;
    // Sorted by address.
    const std::vector<Buffer>& buffers() const { return buffers_; }

private:
    struct Reservation {
        uint64_t begin;  // of the buffer in it
        void* start;
        size_t bytes;
    };

    void insert(Buffer buffer);
    bool erase(uint64_t begin);
    size_t first_ending_after(uint64_t address) const;

    uint64_t arena_address_ = 0;
    uint64_t arena_bytes_ = 0;
    std::vector<Buffer> buffers_;
    std::vector<Reservation> reservations_;
};

// The memory of this process.
DeviceMemory& device_memory();

}  // namespace lk
