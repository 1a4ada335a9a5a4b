// heap.cpp: the memory of a whole program, see heap.h.
#include "heap.h"

#include <algorithm>

#include <sys/mman.h>
#include <unistd.h>

#include "context.h"
#include "device_memory.h"
#include "engine.h"
#include "journal.h"
#include "settings.h"
#include "unset_memory.h"

namespace lk::host {

namespace {

constexpr size_t h100_bytes = size_t{80} << 30;
constexpr size_t least_bytes_of_huge_pages = size_t{4} << 20;
constexpr size_t most_unset_bytes = size_t{1} << 30;  // that are filled, so that reads of what nobody wrote are found

}  // namespace

// No more than half of this machine's memory: a program that fills the GPU must not fill the machine.
Heap::Heap() {
    const size_t physical = static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGESIZE));
    total_bytes_ = std::min(h100_bytes, physical / 2);
}

void* Heap::allocate(size_t bytes, Kind kind, uint64_t place) {
    if (bytes > free_bytes()) return nullptr;
    void* data = device_memory().allocate(bytes);
    if (!data) return nullptr;
    const uint64_t begin = reinterpret_cast<uint64_t>(data);
#ifdef MADV_HUGEPAGE
    // To touch memory for the first time, and to open and close it, costs time per page.
    if (bytes >= least_bytes_of_huge_pages) {
        const uint64_t page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
        madvise(reinterpret_cast<void*>(begin / page * page), bytes, MADV_HUGEPAGE);
    }
#endif
    allocations_[begin] = {bytes, kind, place};
    used_bytes_ += bytes;
    if (settings().mode == Mode::check && kind == Kind::device && bytes <= most_unset_bytes - unset_bytes_) {
        fill_unset(data, bytes);
        unset_bytes_ += bytes;
    }
    if (opened_ == 0) protect(begin, allocations_[begin], false);
    return data;
}

void* Heap::allocate_for_graph(size_t bytes) {
    void* data = allocate(bytes, Kind::device);
    if (data) allocations_[reinterpret_cast<uint64_t>(data)].of_graph = true;
    return data;
}

bool Heap::release(void* address, bool pinned) {
    const auto found = allocations_.find(reinterpret_cast<uint64_t>(address));
    if (found == allocations_.end() || found->second.kind == Kind::registered) return false;
    if ((found->second.kind == Kind::pinned) != pinned) return false;
    if (found->second.of_graph) return true;
    device_memory().release(address);
    used_bytes_ -= found->second.bytes;
    released_[found->first] = found->second.bytes;
    allocations_.erase(found);
    return true;
}

bool Heap::enlist(void* address, size_t bytes) {
    return allocations_.insert({reinterpret_cast<uint64_t>(address), {bytes, Kind::registered, 0}}).second;
}

bool Heap::delist(void* address) {
    const auto found = allocations_.find(reinterpret_cast<uint64_t>(address));
    if (found == allocations_.end() || found->second.kind != Kind::registered) return false;
    allocations_.erase(found);
    return true;
}

void Heap::clear() {
    for (const auto& [begin, allocation] : allocations_) {
        if (allocation.kind != Kind::registered) device_memory().release(reinterpret_cast<void*>(begin));
    }
    allocations_.clear();
    used_bytes_ = 0;
}

const Allocation* Heap::find(const void* address, uint64_t* begin) const {
    const uint64_t at = reinterpret_cast<uint64_t>(address);
    auto after = allocations_.upper_bound(at);
    if (after == allocations_.begin()) return nullptr;
    --after;
    const uint64_t past = after->first + std::max<size_t>(after->second.bytes, 1);
    if (at >= past) return nullptr;
    if (begin) *begin = after->first;
    return &after->second;
}

void Heap::write_down_leaks() const {
    for (const auto& [begin, allocation] : allocations_) {
        if (allocation.kind != Kind::device || !allocation.place) continue;
        journal().write("{\"record\": \"leak\", \"pc\": " + std::to_string(allocation.place) +
                        ", \"bytes\": " + std::to_string(allocation.bytes) + "}");
    }
}

bool Heap::was_released(const void* address, uint64_t* begin, uint64_t* end) const {
    const uint64_t at = reinterpret_cast<uint64_t>(address);
    auto after = released_.upper_bound(at);
    if (after == released_.begin() || find(address, nullptr)) return false;
    --after;
    *begin = after->first;
    *end = after->first + after->second;
    return at < *end;
}

void Heap::protect(uint64_t begin, const Allocation& allocation, bool open) const {
    if (allocation.kind != Kind::device) return;
    const uint64_t page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    const uint64_t first = begin / page * page;
    const uint64_t past = (begin + std::max<size_t>(allocation.bytes, 1) + page - 1) / page * page;
    mprotect(reinterpret_cast<void*>(first), past - first, open ? PROT_READ | PROT_WRITE : PROT_NONE);
}

void Heap::protect_all(bool open) const {
    for (const auto& [begin, allocation] : allocations_) protect(begin, allocation, open);
}

void Heap::open() {
    if (opened_++ > 0) return;
    protect_all(true);
}

void Heap::close() {
    if (--opened_ == 0) protect_all(false);
}

Heap& heap() {
    static Heap the_heap;
    return the_heap;
}

}  // namespace lk::host

// For stand-ins of libraries that work on device memory from host code. A kernel's thread finds it open.
extern "C" void lk_open_device_memory() {
    if (lk::current()) return;
    const std::lock_guard<std::recursive_mutex> held(lk::host::context().lock);
    lk::host::heap().open();
}

extern "C" void lk_close_device_memory() {
    if (lk::current()) return;
    const std::lock_guard<std::recursive_mutex> held(lk::host::context().lock);
    lk::host::heap().close();
}
