// async_checks.cpp: see async_checks.h.
#include "async_checks.h"

#include <algorithm>

namespace lk {

AsyncChecks::AsyncChecks(uint32_t blocks, uint32_t threads, uint64_t shared_bytes)
    : threads_(threads), warps_((threads + 31) / 32), all_(blocks * warps_), granules_(shared_bytes / kGranule + 1),
      time_(all_, 1), known_(uint64_t{all_} * all_), syncs_(all_), fences_(uint64_t{blocks} * threads),
      groups_(uint64_t{blocks} * threads), blocks_(blocks), products_(all_), committed_(all_), awaited_(all_) {}

void AsyncChecks::begin() {
    cluster_barrier();
    regions_.clear();
    free_.clear();
    of_barrier_.clear();
    of_thread_.clear();
    std::fill(groups_.begin(), groups_.end(), 0);
}

void AsyncChecks::begin_block(uint32_t rank) {
    BlockState& block = blocks_[rank];
    if (!block.any) return;
    std::fill(block.loads.begin(), block.loads.end(), 0);
    std::fill(block.stores.begin(), block.stores.end(), 0);
    std::fill(block.written.begin(), block.written.end(), Written{});
    std::fill(block.readers.begin(), block.readers.end(), 0);
    for (uint32_t one = rank * warps_; one < (rank + 1) * warps_; one++) products_[one].clear(), awaited_[one].clear();
    block.any = false;
}

AsyncChecks::BlockState& AsyncChecks::state(uint32_t rank) {
    BlockState& block = blocks_[rank];
    if (block.loads.empty()) {
        block.loads.resize(granules_);
        block.stores.resize(granules_);
        block.written.resize(granules_);
        block.readers.resize(granules_);
    }
    block.any = true;
    return block;
}

void AsyncChecks::tick(uint32_t first, uint32_t count) {
    for (uint32_t one = first; one < first + count; one++) {
        for (uint32_t other = first; other < first + count; other++) known_[uint64_t{one} * all_ + other] = time_[other];
    }
    for (uint32_t one = first; one < first + count; one++) {
        time_[one]++;
        syncs_[one]++;
    }
}

// What one warp learned, all know after the barrier.
void AsyncChecks::block_barrier(uint32_t rank) {
    const uint32_t first = rank * warps_;
    for (uint32_t other = 0; other < all_; other++) {
        uint32_t most = 0;
        for (uint32_t one = first; one < first + warps_; one++) most = std::max(most, known_[uint64_t{one} * all_ + other]);
        for (uint32_t one = first; one < first + warps_; one++) known_[uint64_t{one} * all_ + other] = most;
    }
    tick(first, warps_);
}

void AsyncChecks::cluster_barrier() { tick(0, all_); }

void AsyncChecks::warp_barrier(uint32_t rank, uint32_t warp) { syncs_[rank * warps_ + warp]++; }

void AsyncChecks::publish(const Actor& by, Clocks& object) {
    object.resize(all_);
    const uint32_t own = warp(by);
    for (uint32_t other = 0; other < all_; other++) object[other] = std::max(object[other], known_[uint64_t{own} * all_ + other]);
    object[own] = std::max(object[own], time_[own]);
    time_[own]++;
}

void AsyncChecks::learn(const Actor& by, const Clocks& object) {
    uint32_t* known = &known_[uint64_t{warp(by)} * all_];
    for (uint32_t other = 0; other < object.size(); other++) known[other] = std::max(known[other], object[other]);
}

bool AsyncChecks::fenced_since(uint64_t when, const Actor& writer, const Actor& copier) const {
    return fences_[place(writer)] > when || fences_[place(copier)] > when;
}

bool AsyncChecks::knows_end(const Region& region, uint32_t warp) const {
    for (uint32_t other = 0; other < all_; other++) {
        if (region.waits[other].clock && knows(warp, other, region.waits[other].clock)) return true;
    }
    return false;
}

// Whether the copy has ended for this thread: it waited itself, or is ordered after a thread that did.
bool AsyncChecks::sees(const Region& region, const Actor& by) const {
    const uint32_t own = warp(by);
    const Wait& wait = region.waits[own];
    if (wait.clock && (wait.lanes >> by.thread % 32 & 1 || syncs_[own] > wait.syncs)) return true;
    for (uint32_t other = 0; other < all_; other++) {
        if (other != own && region.waits[other].clock && knows(own, other, region.waits[other].clock)) return true;
    }
    return false;
}

void AsyncChecks::mark(Region& region, const Actor& by) {
    Wait& wait = region.waits[warp(by)];
    if (!wait.clock) wait = {time_[warp(by)], 0, syncs_[warp(by)]};
    wait.lanes |= 1u << by.thread % 32;
}

uint32_t AsyncChecks::make_region() {
    if (free_.empty()) {
        free_.push_back(static_cast<uint32_t>(regions_.size()));
        regions_.push_back(std::make_unique<Region>());
    }
    const uint32_t number = free_.back();
    free_.pop_back();
    Region& region = *regions_[number];
    region.waits.assign(all_, {});
    region.uses.assign(all_, {});
    return number;
}

void AsyncChecks::drop(uint32_t region) {
    const auto remove = [region](auto& lists, auto key) {
        const auto found = lists.find(key);
        if (found == lists.end()) return;
        found->second.erase(std::remove(found->second.begin(), found->second.end(), region), found->second.end());
    };
    remove(of_barrier_, regions_[region]->barrier);
    remove(of_thread_, place(regions_[region]->by));
    free_.push_back(region);
}

void AsyncChecks::release(std::vector<uint32_t>& places, uint64_t first, uint64_t end) {
    for (uint64_t granule = first; granule < end; granule++) {
        const uint32_t before = places[granule];
        places[granule] = 0;
        if (before && --regions_[before - 1]->granules == 0) drop(before - 1);
    }
}

void AsyncChecks::take(std::vector<uint32_t>& places, uint64_t first, uint64_t end, uint32_t region) {
    release(places, first, end);
    std::fill(places.begin() + long(first), places.begin() + long(end), region + 1);
    regions_[region]->granules = end - first;
}

Conflict AsyncChecks::start_load(const Actor& by, uint32_t rank, uint64_t offset, uint64_t bytes, uint64_t barrier,
                                 uint32_t phase) {
    BlockState& block = state(rank);
    const uint64_t first = offset / kGranule;
    const uint64_t end = std::min((offset + bytes + kGranule - 1) / kGranule, granules_);
    const uint32_t own = warp(by);
    Conflict found;
    bool fresh = true;
    for (uint64_t granule = first; granule < end && found.kind == Conflict::none; granule++) {
        if (block.readers[granule]) found = reader_of(rank, granule);
        if (const uint32_t before = block.loads[granule]) {
            fresh = false;
            const Region& region = *regions_[before - 1];
            for (uint32_t other = 0; other < all_; other++) {
                const Use& use = region.uses[other];
                if (use.clock && !knows(own, other, use.clock)) found = {Conflict::overwritten, use.by, granule * kGranule};
            }
            if (found.kind == Conflict::none && !knows_end(region, own)) {
                found = {Conflict::unfinished, region.by, granule * kGranule};
            }
        }
        if (const uint32_t before = block.stores[granule]) {
            const Region& region = *regions_[before - 1];
            if (found.kind == Conflict::none && !knows_end(region, own)) {
                found = {Conflict::in_use, region.by, granule * kGranule, region.number < groups_[place(region.by)]};
            }
        }
        block.written[granule] = {};
    }
    found.fresh = fresh;
    release(block.stores, first, end);
    const uint32_t number = make_region();
    Region& region = *regions_[number];
    region.by = by;
    region.barrier = barrier;
    region.rank = rank;
    region.number = phase;
    of_barrier_[barrier].push_back(number);
    take(block.loads, first, end, number);
    return found;
}

void AsyncChecks::wait(const Actor& by, uint64_t barrier, uint32_t phase) {
    const auto found = of_barrier_.find(barrier);
    if (found == of_barrier_.end()) return;
    for (const uint32_t number : found->second) {
        if (static_cast<int32_t>(phase - regions_[number]->number) >= 0) mark(*regions_[number], by);
    }
}

Conflict AsyncChecks::start_store(const Actor& by, uint64_t offset, uint64_t bytes, uint32_t group, bool grouped) {
    BlockState& block = state(by.rank);
    const uint64_t first = offset / kGranule;
    const uint64_t end = std::min((offset + bytes + kGranule - 1) / kGranule, granules_);
    Conflict found;
    for (uint64_t granule = first; granule < end && found.kind == Conflict::none; granule++) {
        const Written& written = block.written[granule];
        if (written.when && !fenced_since(written.when, written.by, by)) {
            found = {Conflict::unfenced, written.by, granule * kGranule};
        } else if (block.loads[granule] && !sees(*regions_[block.loads[granule] - 1], by)) {
            found = {Conflict::unfinished, regions_[block.loads[granule] - 1]->by, granule * kGranule};
        } else if (block.loads[granule]) {
            regions_[block.loads[granule] - 1]->uses[warp(by)] = {time_[warp(by)], by};
        }
    }
    if (!grouped) return found;
    const uint32_t number = make_region();
    Region& region = *regions_[number];
    region.by = by;
    region.barrier = 0;
    region.rank = by.rank;
    region.number = group;
    of_thread_[place(by)].push_back(number);
    take(block.stores, first, end, number);
    return found;
}

void AsyncChecks::wait_for_groups(const Actor& by, uint32_t first_left) {
    const auto found = of_thread_.find(place(by));
    if (found == of_thread_.end()) return;
    const auto over = [&](uint32_t number) {
        if (regions_[number]->number >= first_left) return false;
        mark(*regions_[number], by);
        return true;
    };
    found->second.erase(std::remove_if(found->second.begin(), found->second.end(), over), found->second.end());
}

Conflict AsyncChecks::access(const Actor& by, uint32_t rank, uint64_t offset, uint32_t bytes, bool writes, bool* filled) {
    *filled = false;
    BlockState& block = state(rank);
    const uint64_t granule = offset / kGranule;
    Conflict found;
    if (const uint32_t load = block.loads[granule]) {
        Region& region = *regions_[load - 1];
        *filled = true;
        if (counts_uses_) region.uses[warp(by)] = {time_[warp(by)], by};
        if (!sees(region, by)) found = {Conflict::unfinished, region.by, offset};
    }
    if (!writes) return found;
    if (block.readers[granule]) found = reader_of(rank, granule);
    if (const uint32_t store = block.stores[granule]) {
        const Region& region = *regions_[store - 1];
        if (!knows_end(region, warp(by))) {
            found = {Conflict::in_use, region.by, offset, region.number < groups_[place(region.by)]};
        }
    }
    if (bytes <= kGranule) block.written[granule] = {now_, by};
    return found;
}

Conflict AsyncChecks::reader_of(uint32_t rank, uint64_t granule) const {
    for (uint32_t one = rank * warps_; one < (rank + 1) * warps_; one++) {
        for (const Product& product : products_[one]) {
            const auto& read = product.granules;
            if (std::find(read.begin(), read.end(), granule) == read.end()) continue;
            return {Conflict::multiplied, product.by, granule * kGranule, product.group < committed_[one]};
        }
    }
    return {};
}

Conflict AsyncChecks::start_product(const Actor& by, const std::vector<uint64_t>& offsets, uint32_t group) {
    BlockState& block = state(by.rank);
    Product product{by, group, {}};
    Conflict found;
    for (const uint64_t offset : offsets) {
        const uint64_t granule = offset / kGranule;
        const Written& written = block.written[granule];
        if (found.kind == Conflict::none && written.when && !fenced_since(written.when, written.by, by)) {
            found = {Conflict::unfenced, written.by, granule * kGranule};
        }
        block.readers[granule]++;
        product.granules.push_back(granule);
    }
    products_[warp(by)].push_back(std::move(product));
    return found;
}

// The reads of a product are those of the first wait of its warpgroup: until then a copy may not overwrite what it reads. Warps
// that wait for it later are ordered after that wait.
void AsyncChecks::wait_for_products(const Actor& by, uint32_t first_left) {
    constexpr size_t kKept = 64;
    BlockState& block = state(by.rank);
    const uint32_t first = by.rank * warps_ + by.thread / 128 * 4;
    std::vector<Awaited>& awaited = awaited_[first];
    const auto earlier = std::find_if(awaited.begin(), awaited.end(), [&](const Awaited& each) { return each.groups >= first_left; });
    if (first_left == 0) return;
    if (earlier != awaited.end()) {
        uint32_t& known = known_[uint64_t{warp(by)} * all_ + earlier->warp];
        known = std::max(known, earlier->clock);
        return;
    }
    if (awaited.size() == kKept) awaited.erase(awaited.begin());
    awaited.push_back({first_left, warp(by), time_[warp(by)]});
    for (uint32_t one = first; one < std::min(first + 4, (by.rank + 1) * warps_); one++) {
        const auto over = [&](const Product& product) {
            if (product.group >= first_left) return false;
            for (const uint64_t granule : product.granules) {
                block.readers[granule]--;
                if (block.loads[granule]) regions_[block.loads[granule] - 1]->uses[warp(by)] = {time_[warp(by)], product.by};
            }
            return true;
        };
        products_[one].erase(std::remove_if(products_[one].begin(), products_[one].end(), over), products_[one].end());
    }
    time_[warp(by)]++;
}

Conflict AsyncChecks::left_over(uint32_t rank) const {
    if (!blocks_[rank].any) return {};
    for (const auto* places : {&blocks_[rank].loads, &blocks_[rank].stores}) {
        const bool stores = places == &blocks_[rank].stores;
        for (uint64_t granule = 0; granule < granules_; granule++) {
            if (!(*places)[granule]) continue;
            const Region& region = *regions_[(*places)[granule] - 1];
            const auto waited = [](const Wait& wait) { return wait.clock != 0; };
            if (std::any_of(region.waits.begin(), region.waits.end(), waited)) continue;
            const bool committed = !stores || region.number < groups_[place(region.by)];
            return {stores ? Conflict::in_use : Conflict::unfinished, region.by, granule * kGranule, committed};
        }
    }
    return {};
}

}  // namespace lk
