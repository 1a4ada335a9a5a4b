// device_memory.cpp: device memory, see device_memory.h.
#include "device_memory.h"

#include <algorithm>

#include <sys/mman.h>
#include <unistd.h>

#include "device_heap.h"

namespace lk {

namespace {

constexpr uint64_t kAlignment = 256;             // cudaMalloc's
constexpr size_t kLargestGuard = size_t{8} << 30;  // what a 32-bit index into 4-byte elements can reach
constexpr size_t kSmallestGuard = size_t{64} << 10;

uint64_t page_bytes() {
    static const uint64_t bytes = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    return bytes;
}

uint64_t page_floor(uint64_t address) { return address & ~(page_bytes() - 1); }

uint64_t page_ceiling(uint64_t address) { return page_floor(address + page_bytes() - 1); }

void* pointer(uint64_t address) { return reinterpret_cast<void*>(address); }

bool protect(uint64_t begin, uint64_t end, int protection) {
    const uint64_t first = page_floor(begin);
    return mprotect(pointer(first), page_ceiling(end) - first, protection) == 0;
}

// Addresses that belong to us and that nothing can touch.
void* reserve(size_t bytes, uint64_t address, int file) {
#ifdef MAP_FIXED_NOREPLACE
    int flags = MAP_NORESERVE | (address ? MAP_FIXED_NOREPLACE : 0);
#else
    int flags = MAP_NORESERVE;
#endif
    flags |= file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
    void* start = mmap(pointer(address), bytes, PROT_NONE, flags, file, 0);
    if (start == MAP_FAILED) return nullptr;
    if (address && start != pointer(address)) {  // a kernel before 4.17 takes the address as a hint
        munmap(start, bytes);
        return nullptr;
    }
    madvise(start, bytes, MADV_DONTDUMP);  // a core dump would walk the whole reservation
    return start;
}

}  // namespace

bool DeviceMemory::open_arena(int file, size_t bytes, uint64_t address) {
    void* start = reserve(bytes + kHeapRegionBytes, address, file);
    if (!start) return false;
    arena_address_ = reinterpret_cast<uint64_t>(start);
    arena_bytes_ = bytes;
    const uint64_t heap = arena_address_ + bytes;
    if (!protect(heap, heap + kHeapRegionBytes, PROT_READ | PROT_WRITE)) return false;
    heap_open(pointer(heap));
    return true;
}

bool DeviceMemory::attach(uint64_t offset, size_t bytes) {
    const uint64_t begin = arena_address_ + offset;
    if (!protect(begin, begin + bytes, PROT_READ | PROT_WRITE)) return false;
    insert({begin, begin + bytes});
    return true;
}

void DeviceMemory::detach(uint64_t offset) {
    const uint64_t begin = arena_address_ + offset;
    const size_t at = first_ending_after(begin);
    if (at == buffers_.size() || buffers_[at].begin != begin) return;
    protect(begin, buffers_[at].end, PROT_NONE);
    erase(begin);
}

void* DeviceMemory::allocate(size_t bytes) {
    const size_t body = std::max(page_ceiling(bytes), page_bytes());
    if (body < bytes) return nullptr;
    for (size_t guard = kLargestGuard; guard >= kSmallestGuard; guard /= 2) {  // smaller when addresses run short
        const size_t reserved = body + 2 * guard;
        void* start = reserve(reserved, 0, -1);
        if (!start) continue;
        const uint64_t first = reinterpret_cast<uint64_t>(start) + guard;
        const uint64_t begin = (first + body - bytes) & ~(kAlignment - 1);
        if (!protect(first, first + body, PROT_READ | PROT_WRITE)) {
            munmap(start, reserved);
            return nullptr;
        }
        insert({begin, begin + bytes});
        reservations_.push_back({begin, start, reserved});
        return pointer(begin);
    }
    return nullptr;
}

bool DeviceMemory::release(void* data) {
    const uint64_t begin = reinterpret_cast<uint64_t>(data);
    const auto found = std::find_if(reservations_.begin(), reservations_.end(),
                                    [begin](const Reservation& each) { return each.begin == begin; });
    if (found == reservations_.end()) return false;
    munmap(found->start, found->bytes);
    *found = reservations_.back();
    reservations_.pop_back();
    return erase(begin);
}

const Buffer* DeviceMemory::find(uint64_t address) const {
    const size_t at = first_ending_after(address);
    return at < buffers_.size() && buffers_[at].begin <= address ? &buffers_[at] : nullptr;
}

const Buffer* DeviceMemory::nearest(uint64_t address) const {
    const size_t at = first_ending_after(address);
    const Buffer* above = at < buffers_.size() ? &buffers_[at] : nullptr;
    const Buffer* below = at > 0 ? &buffers_[at - 1] : nullptr;
    if (!above || !below) return above ? above : below;
    if (address >= above->begin) return above;
    return address - below->end < above->begin - address ? below : above;
}

void DeviceMemory::insert(Buffer buffer) {
    const auto by_begin = [](const Buffer& one, const Buffer& other) { return one.begin < other.begin; };
    buffers_.insert(std::upper_bound(buffers_.begin(), buffers_.end(), buffer, by_begin), buffer);
}

bool DeviceMemory::erase(uint64_t begin) {
    const auto found = std::find_if(buffers_.begin(), buffers_.end(),
                                    [begin](const Buffer& each) { return each.begin == begin; });
    if (found == buffers_.end()) return false;
    buffers_.erase(found);
    return true;
}

// Buffers do not overlap, so sorting by begin sorts by end too.
size_t DeviceMemory::first_ending_after(uint64_t address) const {
    const auto ends_before = [](const Buffer& buffer, uint64_t at) { return buffer.end <= at; };
    return static_cast<size_t>(std::lower_bound(buffers_.begin(), buffers_.end(), address, ends_before) -
                               buffers_.begin());
}

DeviceMemory& device_memory() {
    static DeviceMemory memory;
    return memory;
}

}  // namespace lk
