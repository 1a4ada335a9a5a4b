// device_heap.cpp: blocks of powers of two from one reservation, freed ones kept by size.
#include "device_heap.h"

#include <sys/mman.h>

#include <algorithm>
#include <mutex>

namespace lk {

namespace {

constexpr int kClasses = 32;

// In front of every allocation. The tag makes a pointer that malloc never returned recognisable.
struct alignas(16) Header {
    uint64_t tag;
    int size_class;
};

constexpr uint64_t kAllocated = 0x6465766963654865;
constexpr uint64_t kFree = 0x6672656564486561;

std::mutex mutex;
char* begin = nullptr;
size_t used = 0;
Header* free_lists[kClasses];

Header*& next(Header* header) { return *reinterpret_cast<Header**>(header + 1); }

}  // namespace

uint64_t heap_begin() { return reinterpret_cast<uint64_t>(begin); }

bool in_heap(const void* pointer) {
    return begin && size_t(static_cast<const char*>(pointer) - begin) < kDeviceHeapBytes;
}

void* heap_allocate(size_t bytes) {
    if (bytes > kDeviceHeapBytes) return nullptr;
    std::lock_guard lock(mutex);
    if (!begin) {
        void* memory = mmap(nullptr, kDeviceHeapBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED) return nullptr;
        begin = static_cast<char*>(memory);
    }
    int size_class = 4;
    while ((size_t{1} << size_class) < bytes) size_class++;
    Header* header = free_lists[size_class];
    if (header) {
        free_lists[size_class] = next(header);
    } else {
        size_t needed = sizeof(Header) + (size_t{1} << size_class);
        if (needed > kDeviceHeapBytes - used) return nullptr;
        header = reinterpret_cast<Header*>(begin + used);
        used += needed;
    }
    *header = {kAllocated, size_class};
    return header + 1;
}

bool heap_release(void* pointer) {
    std::lock_guard lock(mutex);
    uint64_t offset = reinterpret_cast<uint64_t>(pointer) - heap_begin();
    if (!begin || offset < sizeof(Header) || offset > used || offset % alignof(Header)) return false;
    Header* header = static_cast<Header*>(pointer) - 1;
    if (header->tag != kAllocated || header->size_class < 0 || header->size_class >= kClasses) return false;
    header->tag = kFree;
    next(header) = free_lists[header->size_class];
    free_lists[header->size_class] = header;
    return true;
}

}  // namespace lk
