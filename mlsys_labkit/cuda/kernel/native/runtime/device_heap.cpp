// device_heap.cpp: blocks of powers of two from one region, freed ones kept by size.
//
// Workers share the region, and a plain launch, which nothing watches, may write what it likes into it. So nothing in it is a
// pointer, and each number in it is read once and checked before it is used.
#include "device_heap.h"

#include <sys/mman.h>

#include <mutex>

namespace lk {

namespace {

constexpr int kClasses = 32;
constexpr int kSmallestClass = 4;
constexpr size_t kStateBytes = kHeapRegionBytes - kDeviceHeapBytes;

// In front of every allocation. The tag makes a pointer that malloc never returned recognisable.
struct alignas(16) Header {
    uint64_t tag;
    uint64_t size_class;
};

// At the region's beginning, apart from what kernels may touch. Zeros are an empty heap.
struct HeapState {
    uint64_t used;
    uint64_t free_lists[kClasses];  // offsets of headers from the region's beginning, 0 for none
};
static_assert(sizeof(HeapState) <= kStateBytes);

constexpr uint64_t kAllocated = 0x6465766963654865;
constexpr uint64_t kFree = 0x6672656564486561;

std::mutex mutex;  // one launch runs at a time, whatever worker it is in
char* region = nullptr;

HeapState& heap_state() { return *reinterpret_cast<HeapState*>(region); }

Header* header_at(uint64_t offset) { return reinterpret_cast<Header*>(region + offset); }

uint64_t& next(Header* header) { return *reinterpret_cast<uint64_t*>(header + 1); }

uint64_t read_once(const uint64_t& value) { return __atomic_load_n(&value, __ATOMIC_RELAXED); }

// Whether a block of this class can begin at this offset.
bool fits(uint64_t offset, uint64_t size_class) {
    if (size_class < kSmallestClass || size_class >= kClasses || offset < kStateBytes || offset % alignof(Header)) return false;
    return offset <= kHeapRegionBytes && sizeof(Header) + (size_t{1} << size_class) <= kHeapRegionBytes - offset;
}

bool open_own() {
    if (region) return true;
    void* memory = mmap(nullptr, kHeapRegionBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return false;
    heap_open(memory);
    return true;
}

}  // namespace

void heap_open(void* shared) { region = static_cast<char*>(shared); }

uint64_t heap_begin() {
    return region && read_once(heap_state().used) ? reinterpret_cast<uint64_t>(region) + kStateBytes : 0;
}

bool in_heap(const void* pointer) {
    const uint64_t begin = heap_begin();
    return begin && reinterpret_cast<uint64_t>(pointer) - begin < kDeviceHeapBytes;
}

void* heap_allocate(size_t bytes) {
    if (bytes > kDeviceHeapBytes) return nullptr;
    std::lock_guard lock(mutex);
    if (!open_own()) return nullptr;
    HeapState& state = heap_state();
    uint64_t size_class = kSmallestClass;
    while ((size_t{1} << size_class) < bytes) size_class++;
    uint64_t offset = read_once(state.free_lists[size_class]);
    if (fits(offset, size_class)) {
        state.free_lists[size_class] = read_once(next(header_at(offset)));
    } else {
        const uint64_t used = read_once(state.used);
        offset = kStateBytes + used;
        if (used > kDeviceHeapBytes || !fits(offset, size_class)) return nullptr;
        state.used = used + sizeof(Header) + (size_t{1} << size_class);
    }
    Header* header = header_at(offset);
    *header = {kAllocated, size_class};
    return header + 1;
}

bool heap_release(void* pointer) {
    std::lock_guard lock(mutex);
    if (!in_heap(pointer)) return false;
    const uint64_t offset = static_cast<uint64_t>(static_cast<char*>(pointer) - region) - sizeof(Header);
    if (!fits(offset, kSmallestClass)) return false;
    Header* header = header_at(offset);
    const uint64_t size_class = read_once(header->size_class);
    if (read_once(header->tag) != kAllocated || !fits(offset, size_class)) return false;
    uint64_t& first = heap_state().free_lists[size_class];
    header->tag = kFree;
    next(header) = read_once(first);
    first = offset;
    return true;
}

}  // namespace lk
