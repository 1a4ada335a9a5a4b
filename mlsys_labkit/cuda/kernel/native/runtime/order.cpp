// order.cpp: see order.h.
#include "order.h"

#include <algorithm>
#include <unordered_set>

#include <sys/mman.h>

namespace lk {

void Objects::release(uint64_t object, Participant by, uint32_t mark, uint32_t floor) {
    const std::lock_guard<std::mutex> lock(mutex_);
    Release& release = releases_[object][by.block];
    release.floor = std::max(release.floor, floor);
    uint32_t& known = release.marks[by.warp];
    known = std::max(known, mark);
}

void Objects::acquire(uint64_t object, Participant by) {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::vector<uint64_t>& objects = acquired_[key(by)];
    if (std::find(objects.begin(), objects.end(), object) == objects.end()) objects.push_back(object);
}

void Objects::share_with_block(uint64_t block, uint32_t warps) {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::vector<uint64_t>& shared = acquired_[key({block, kWholeBlock})];
    for (uint32_t warp = 0; warp < warps; warp++) {
        const auto own = acquired_.find(key({block, warp}));
        if (own == acquired_.end()) continue;
        shared.insert(shared.end(), own->second.begin(), own->second.end());
        own->second.clear();
    }
    std::sort(shared.begin(), shared.end());
    shared.erase(std::unique(shared.begin(), shared.end()), shared.end());
}

const std::vector<uint64_t>* Objects::acquired(Participant who) const {
    const auto found = acquired_.find(key(who));
    return found == acquired_.end() ? nullptr : &found->second;
}

bool Objects::knows_anything(Participant who) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto* own = acquired(who);
    const auto* shared = acquired({who.block, kWholeBlock});
    return (own && !own->empty()) || (shared && !shared->empty());
}

// Follows acquired objects to the participants that released them, breadth first, until one has released the access.
bool Objects::orders(Participant past, uint32_t segment, Participant now) {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::vector<Participant> ask{now};
    std::unordered_set<uint64_t> asked{key(now)};
    std::unordered_set<uint64_t> seen;
    const auto ask_later = [&](Participant who) {
        if (asked.insert(key(who)).second) ask.push_back(who);
    };
    for (size_t next = 0; next < ask.size(); next++) {
        const Participant who = ask[next];
        if (who.warp != kWholeBlock) ask_later({who.block, kWholeBlock});
        const auto* objects = acquired(who);
        if (!objects) continue;
        for (const uint64_t object : *objects) {
            if (!seen.insert(object).second) continue;
            const auto releases = releases_.find(object);
            if (releases == releases_.end()) continue;
            const auto own = releases->second.find(past.block);
            if (own != releases->second.end()) {
                if (segment < own->second.floor) return true;
                const auto mark = own->second.marks.find(past.warp);
                if (mark != own->second.marks.end() && segment < mark->second) return true;
            }
            for (const auto& [block, release] : releases->second) {
                for (const auto& [warp, mark] : release.marks) ask_later({block, warp});
            }
        }
    }
    return false;
}

Segments& Segments::instance() {
    static Segments segments;
    return segments;
}

Segments::Segments() {
    void* table = mmap(nullptr, kMostOfLaunch * sizeof(uint32_t), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    blocks_ = table == MAP_FAILED ? nullptr : static_cast<uint32_t*>(table);
}

bool Segments::begin_launch() {
    const uint32_t used = std::min(next() - base_, kMostOfLaunch);
    constexpr uint32_t kKept = 1 << 20;  // entries whose memory stays, for the next launch
    if (blocks_ && used > kKept) madvise(blocks_ + kKept, (used - kKept) * sizeof(uint32_t), MADV_DONTNEED);
    const bool again = next() > ~uint32_t{0} - 2 * kMostOfLaunch;
    if (again) next_.store(1);
    base_ = next();
    raise_floor();
    return again;
}

uint32_t Segments::allocate(uint64_t block) {
    const uint32_t segment = next_.fetch_add(1, std::memory_order_relaxed);
    const uint32_t index = segment - base_;
    if (blocks_ && index < kMostOfLaunch) __atomic_store_n(&blocks_[index], static_cast<uint32_t>(block), __ATOMIC_RELAXED);
    return segment;
}

// Segments beyond the table count as those of block 0.
uint64_t Segments::block_of(uint32_t segment) const {
    const uint32_t index = segment - base_;
    return blocks_ && index < kMostOfLaunch ? __atomic_load_n(&blocks_[index], __ATOMIC_RELAXED) : 0;
}

bool WarpClock::orders_group(uint32_t first_lane, uint32_t lanes, uint32_t recorded, uint32_t clock, uint32_t now) const {
    if (recorded != now && !orders(recorded, clock, now)) return false;
    bool met_anyone = false;
    for (uint32_t lane = first_lane; lane < first_lane + lanes; lane++) {
        if (lane == now || known_[now][lane] == 0) continue;  // a lane with no common barrier may be outside the group
        met_anyone = true;
        if (!orders(lane, clock, now)) return false;
    }
    return met_anyone;
}

bool WarpClock::barrier(uint32_t mask) {
    uint8_t joined[kWarpLanes] = {};
    bool full = false;
    for (uint32_t lanes = mask; lanes; lanes &= lanes - 1) {
        const uint32_t lane = static_cast<uint32_t>(__builtin_ctz(lanes));
        known_[lane][lane]++;
        full |= known_[lane][lane] >= kMost;
        for (uint32_t i = 0; i < kWarpLanes; i++) joined[i] = std::max(joined[i], known_[lane][i]);
    }
    for (uint32_t lanes = mask; lanes; lanes &= lanes - 1) {
        std::copy(joined, joined + kWarpLanes, known_[__builtin_ctz(lanes)]);
    }
    moved_ = true;
    return !full;
}

void WarpClock::reset() {
    if (!moved_) return;
    std::fill(&known_[0][0], &known_[0][0] + sizeof known_, uint8_t{0});
    moved_ = false;
}

BlockOrder::BlockOrder(Objects& objects, uint32_t threads)
    : objects_(objects), segments_(Segments::instance()), warps_((threads + kWarpLanes - 1) / kWarpLanes), fences_(threads),
      early_reads_(threads) {}

void BlockOrder::begin_block(uint64_t block) {
    block_ = block;
    acquired_ = false;
    any_early_read_ = false;
    std::fill(early_reads_.begin(), early_reads_.end(), 0);
    block_barrier();
    first_ = floor_;
    cluster_floor_ = 0;
    std::fill(fences_.begin(), fences_.end(), Fence{});
}

void BlockOrder::block_barrier() {
    floor_ = segments_.next();
    new_segment();
    for (Warp& warp : warps_) warp.clock.reset();
    acquire_early_reads();
    if (acquired_) objects_.share_with_block(block_, static_cast<uint32_t>(warps_.size()));
    acquired_ = false;
}

void BlockOrder::cluster_barrier() { cluster_floor_ = segments_.next(); }

// A full clock starts again at 0 in a new segment, which orders all earlier accesses of the warp. A race with an access from
// before the reset is missed. It takes 127 barriers of parts of a warp, with no barrier of the block between them.
void BlockOrder::warp_barrier(uint32_t warp, uint32_t mask) {
    if (warps_[warp].clock.barrier(mask)) return;
    warps_[warp].clock.reset();
    warps_[warp].floor = segments_.next();
    new_segment();
}

void BlockOrder::fence(uint32_t thread) {
    objects_.use();
    acquire_early_reads();
    fences_[thread] = {segments_.next(), floor_};
    new_segment();
}

void BlockOrder::atomic(uint32_t thread, uint64_t object, bool writes, bool reads) {
    const Participant who{block_, thread / kWarpLanes};
    const Fence& fence = fences_[thread];
    if (writes && fence.mark) objects_.release(object, who, fence.mark, fence.floor);
    if (!reads) return;
    if (objects_.in_use()) return acquire(thread, object);
    early_reads_[thread] = object;
    any_early_read_ = true;
}

void BlockOrder::release(uint32_t thread, uint64_t object) {
    fence(thread);
    objects_.release(object, {block_, thread / kWarpLanes}, fences_[thread].mark, fences_[thread].floor);
}

void BlockOrder::acquire(uint32_t thread, uint64_t object) {
    objects_.use();
    objects_.acquire(object, {block_, thread / kWarpLanes});
    acquired_ = true;
}

void BlockOrder::acquire_early_reads() {
    if (!any_early_read_ || !objects_.in_use()) return;
    for (uint32_t thread = 0; thread < early_reads_.size(); thread++) {
        if (early_reads_[thread]) acquire(thread, early_reads_[thread]);
        early_reads_[thread] = 0;
    }
    any_early_read_ = false;
}

}  // namespace lk
