// shadow_global.cpp: see shadow_global.h.
#include "shadow_global.h"

#include <algorithm>

#include <sys/mman.h>

namespace lk {

namespace {

constexpr uint64_t kMostKeptBytes = uint64_t{256} << 20;    // of data whose shadow stays in memory between launches
constexpr uint64_t kHugePage = uint64_t{2} << 20;

// Blocks on other threads of the operating system look at the same cells.
struct AtomicSlot {
    std::atomic<uint64_t>& bits;
    uint64_t load() const { return bits.load(); }
    template <class F>
    uint64_t update(const F& change) const {
        uint64_t before = bits.load(std::memory_order_relaxed);
        for (;;) {
            if (before == kSplit) return before;
            const uint64_t after = change(before);
            if (after == before || bits.compare_exchange_weak(before, after)) return before;
        }
    }
};

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

// Atomics and volatile accesses are flags that threads may share.
bool is_flag(Op op) { return is_atomic(op) || is_volatile(op); }

// Moves a word's cell to its bytes.
void split(std::atomic<uint64_t>& word, std::atomic<uint64_t>* bytes) {
    uint64_t bits = word.load();
    while (bits != kSplit) {
        for (uint32_t byte = 0; byte < 4; byte++) bytes[byte].store(bits, std::memory_order_relaxed);
        if (word.compare_exchange_weak(bits, kSplit)) return;
    }
}

void unite(std::atomic<uint64_t>& word, const std::atomic<uint64_t>* bytes) {
    const uint64_t first = bytes[0].load(std::memory_order_relaxed);
    for (uint32_t byte = 1; byte < 4; byte++) {
        if (bytes[byte].load(std::memory_order_relaxed) != first) return;
    }
    word.store(first);
}

}  // namespace

GlobalShadow::GlobalShadow(uint64_t begin, uint64_t end) : begin_(begin), end_(end), origin_(begin & ~uint64_t{3}) {
    const auto whole_pages = [](uint64_t cells) { return (cells * sizeof(Cells) + kHugePage) & ~(kHugePage - 1); };
    const uint64_t words = (end - origin_ + 3) / 4;
    const uint64_t word_bytes = words * sizeof(Cells) < kHugePage ? (words * sizeof(Cells) + 4095) & ~uint64_t{4095} : whole_pages(words);
    const uint64_t byte_bytes = words * 4 * sizeof(Cells) < kHugePage ? (words * 32 + 4095) & ~uint64_t{4095} : whole_pages(4 * words);
    reserved_bytes_ = 2 * word_bytes + 2 * byte_bytes;
    void* start = mmap(nullptr, reserved_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (start == MAP_FAILED) return;  // no addresses left: this buffer's races are not looked for
    madvise(start, reserved_bytes_, MADV_DONTDUMP);
    madvise(start, reserved_bytes_, MADV_HUGEPAGE);
    reservation_ = start;
    char* at = static_cast<char*>(start);
    word_writes_ = reinterpret_cast<Cells*>(at);
    word_reads_ = reinterpret_cast<Cells*>(at + word_bytes);
    byte_writes_ = reinterpret_cast<Cells*>(at + 2 * word_bytes);
    byte_reads_ = reinterpret_cast<Cells*>(at + 2 * word_bytes + byte_bytes);
}

GlobalShadow::~GlobalShadow() {
    if (reservation_) munmap(reservation_, reserved_bytes_);
}

void GlobalShadow::clear() {
    if (reservation_) madvise(reservation_, reserved_bytes_, MADV_DONTNEED);
}

Clash GlobalShadow::access(const Present& now, uint64_t address, uint32_t bytes, const Sites& sites) {
    Clash clash;
    if (!reservation_) return clash;
    const AnyBlock where{now.order};
    const auto exempt = [&](const Cell& past) { return is_flag(now.op) && is_flag(sites.op(past.site)); };
    const uint64_t first = address - origin_;
    const uint64_t end = first + bytes;
    for (uint64_t word = first / 4; word * 4 < end; word++) {
        const bool whole = word * 4 >= first && word * 4 + 4 <= end;
        if (whole && word_writes_[word].load() != kSplit && word_reads_[word].load() != kSplit) {
            look(where, AtomicSlot{word_writes_[word]}, AtomicSlot{word_reads_[word]}, now, exempt, clash);
            if (word_writes_[word].load() != kSplit && word_reads_[word].load() != kSplit) continue;
        }
        look_at_bytes(now, word, first, end, sites, clash);
    }
    return clash;
}

void GlobalShadow::look_at_bytes(const Present& now, uint64_t word, uint64_t first, uint64_t end, const Sites& sites,
                                 Clash& clash) {
    const AnyBlock where{now.order};
    const auto exempt = [&](const Cell& past) { return is_flag(now.op) && is_flag(sites.op(past.site)); };
    const WordLock lock(word);
    split(word_writes_[word], &byte_writes_[4 * word]);
    split(word_reads_[word], &byte_reads_[4 * word]);
    for (uint64_t byte = std::max(first, word * 4); byte < std::min(end, word * 4 + 4); byte++) {
        look(where, AtomicSlot{byte_writes_[byte]}, AtomicSlot{byte_reads_[byte]}, now, exempt, clash);
    }
    if (first <= word * 4 && word * 4 + 4 <= end) {
        unite(word_writes_[word], &byte_writes_[4 * word]);
        unite(word_reads_[word], &byte_reads_[4 * word]);
    }
}

GlobalShadows& GlobalShadows::instance() {
    static GlobalShadows shadows;
    return shadows;
}

void GlobalShadows::begin_launch(std::vector<Range> ranges, bool clear) {
    std::sort(ranges.begin(), ranges.end(), [](const Range& one, const Range& other) { return one.begin < other.begin; });
    std::vector<std::unique_ptr<GlobalShadow>> shadows;
    size_t old = 0;
    for (const Range& range : ranges) {
        while (old < shadows_.size() && shadows_[old]->begin() < range.begin) old++;
        const bool known = old < shadows_.size() && shadows_[old]->begin() == range.begin && shadows_[old]->end() == range.end;
        shadows.push_back(known ? std::move(shadows_[old]) : std::make_unique<GlobalShadow>(range.begin, range.end));
        if (known) old++;
        if (clear) shadows.back()->clear();
    }
    shadows_ = std::move(shadows);
}

void GlobalShadows::end_launch() {
    uint64_t bytes = 0;
    for (const auto& shadow : shadows_) bytes += shadow->end() - shadow->begin();
    if (bytes <= kMostKeptBytes) return;
    for (const auto& shadow : shadows_) shadow->clear();
}

GlobalShadow* GlobalShadows::find(uint64_t address) const {
    const auto after = std::upper_bound(shadows_.begin(), shadows_.end(), address,
                                        [](uint64_t at, const auto& shadow) { return at < shadow->begin(); });
    if (after == shadows_.begin()) return nullptr;
    GlobalShadow* shadow = std::prev(after)->get();
    return address < shadow->end() ? shadow : nullptr;
}

}  // namespace lk
