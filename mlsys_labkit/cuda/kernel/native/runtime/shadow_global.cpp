// shadow_global.cpp: see shadow_global.h.
#include "shadow_global.h"

#include <algorithm>

#include <sys/mman.h>

namespace lk {

namespace {

constexpr uint64_t kMostKeptBytes = uint64_t{256} << 20;    // of data whose shadow stays in memory between launches
constexpr uint64_t kPage = 4096;
constexpr uint64_t kHugePage = uint64_t{2} << 20;

// Splitting a word takes a lock, and so does every access to the bytes of a split word.
class WordLock {
public:
    explicit WordLock(uint64_t word) : lock_(locks_[word % kLocks]) {
        while (lock_.test_and_set(std::memory_order_acquire)) {
        }
    }
    ~WordLock() { lock_.clear(std::memory_order_release); }
    WordLock(const WordLock&) = delete;
    WordLock& operator=(const WordLock&) = delete;

private:
    static constexpr uint64_t kLocks = 1021;
    static std::atomic_flag locks_[kLocks];
    std::atomic_flag& lock_;
};

std::atomic_flag WordLock::locks_[WordLock::kLocks] = {};

// Moves a word's cell to its bytes.
void split(std::atomic<uint64_t>& word, std::atomic<uint64_t>* bytes) {
    uint64_t bits = word.load();
    while (bits != kSplit) {
        for (uint32_t byte = 0; byte < 4; byte++) bytes[byte].store(bits, std::memory_order_relaxed);
        if (word.compare_exchange_weak(bits, kSplit)) return;
    }
}

}  // namespace

// Blocks on other threads of the operating system look at the same cells.
struct GlobalShadow::PlaneCells {
    Cell64* const* planes;
    uint64_t index;

    uint64_t load(Plane which) const { return planes[which][index].load(); }
    void store(Plane which, uint64_t bits) const { planes[which][index].store(bits, std::memory_order_relaxed); }
    template <class F>
    uint64_t update(Plane which, const F& change) const {
        Cell64& cell = planes[which][index];
        uint64_t before = cell.load(std::memory_order_relaxed);
        for (;;) {
            if (before == kSplit) return before;
            const uint64_t after = change(before);
            if (after == before || cell.compare_exchange_weak(before, after)) return before;
        }
    }
};

GlobalShadow::GlobalShadow(AddressRange buffer) : AddressRange(buffer), origin_(begin & ~uint64_t{3}) {
    const uint64_t words = (end - origin_ + 3) / 4;
    const auto plane_bytes = [](uint64_t cells) {
        const uint64_t bytes = cells * sizeof(Cell64);
        const uint64_t page = bytes < kHugePage ? kPage : kHugePage;
        return (bytes + page - 1) & ~(page - 1);
    };
    const uint64_t word_plane = plane_bytes(words);
    const uint64_t byte_plane = plane_bytes(4 * words);
    reserved_bytes_ = kPlanes * (word_plane + byte_plane);
    void* start = mmap(nullptr, reserved_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (start == MAP_FAILED) return;  // no addresses left: this buffer's races are not looked for
    madvise(start, reserved_bytes_, MADV_DONTDUMP);
    madvise(start, reserved_bytes_, MADV_HUGEPAGE);
    reservation_ = start;
    char* at = static_cast<char*>(start);
    for (uint32_t plane = 0; plane < kPlanes; plane++) {
        words_[plane] = reinterpret_cast<Cell64*>(at + plane * word_plane);
        bytes_[plane] = reinterpret_cast<Cell64*>(at + kPlanes * word_plane + plane * byte_plane);
    }
}

GlobalShadow::~GlobalShadow() {
    if (reservation_) munmap(reservation_, reserved_bytes_);
}

void GlobalShadow::clear() {
    if (reservation_) madvise(reservation_, reserved_bytes_, MADV_DONTNEED);
    atomics_segment_ = 0;
}

Clash GlobalShadow::access(const Present& now, uint64_t address, uint32_t bytes, const Sites& sites) {
    Clash clash;
    if (!reservation_) return clash;
    const AnyBlock where{now.order};
    if (plane_of(now.op, true) == kAtomics) atomics_segment_ = now.cell.segment;
    const auto atomics_seen = [&] { return atomics_segment_ >= now.order.segments().floor(); };
    const uint64_t first = address - origin_;
    const uint64_t end = first + bytes;
    for (uint64_t word = first / 4; word * 4 < end; word++) {
        const bool whole = word * 4 >= first && word * 4 + 4 <= end;
        if (whole && !is_split(word) && look(where, PlaneCells{words_, word}, now, sites, atomics_seen, clash)) continue;
        look_at_bytes(now, word, first, end, sites, clash);
    }
    return clash;
}

void GlobalShadow::look_at_bytes(const Present& now, uint64_t word, uint64_t first, uint64_t end, const Sites& sites,
                                 Clash& clash) {
    const AnyBlock where{now.order};
    const auto atomics_seen = [] { return true; };
    const WordLock lock(word);
    for (uint32_t plane = 0; plane < kPlanes; plane++) split(words_[plane][word], &bytes_[plane][4 * word]);
    for (uint64_t byte = std::max(first, word * 4); byte < std::min(end, word * 4 + 4); byte++) {
        look(where, PlaneCells{bytes_, byte}, now, sites, atomics_seen, clash);
    }
    if (first > word * 4 || word * 4 + 4 > end) return;
    const auto whole = [&](Cell64* const* bytes, uint32_t plane) {
        const uint64_t one = bytes[plane][4 * word];
        return bytes[plane][4 * word + 1] == one && bytes[plane][4 * word + 2] == one && bytes[plane][4 * word + 3] == one;
    };
    for (uint32_t plane = 0; plane < kPlanes; plane++) {
        if (!whole(bytes_, plane)) return;
    }
    for (uint32_t plane = kPlanes; plane-- > 0;) words_[plane][word] = bytes_[plane][4 * word].load();
}

GlobalShadows& GlobalShadows::instance() {
    static GlobalShadows shadows;
    return shadows;
}

void GlobalShadows::begin_launch(const std::vector<AddressRange>& buffers, bool clear) {
    std::vector<std::unique_ptr<GlobalShadow>> shadows;
    size_t old = 0;
    for (const AddressRange& range : buffers) {
        while (old < shadows_.size() && shadows_[old]->begin < range.begin) old++;
        const bool known = old < shadows_.size() && shadows_[old]->begin == range.begin && shadows_[old]->end == range.end;
        shadows.push_back(known ? std::move(shadows_[old]) : std::make_unique<GlobalShadow>(range));
        if (known) old++;
        if (clear) shadows.back()->clear();
    }
    shadows_ = std::move(shadows);
}

void GlobalShadows::end_launch() {
    uint64_t bytes = 0;
    for (const auto& shadow : shadows_) bytes += shadow->end - shadow->begin;
    if (bytes <= kMostKeptBytes) return;
    for (const auto& shadow : shadows_) shadow->clear();
}

}  // namespace lk
