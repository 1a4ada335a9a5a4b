// counts.cpp: see counts.h.
#include "counts.h"

#include <algorithm>

namespace lk {

namespace {

uint64_t lanes_of(uint32_t mask) { return static_cast<uint64_t>(__builtin_popcount(mask)); }

void add_up(SiteCount& sum, const SiteCount& part) {
    sum.worst = std::max(sum.worst, part.worst);
    sum.requests += part.requests;
    sum.lanes += part.lanes;
    sum.sectors += part.sectors;
    sum.wavefronts += part.wavefronts;
    sum.ideal_sectors += part.ideal_sectors;
    sum.ideal_wavefronts += part.ideal_wavefronts;
}

}  // namespace

Counts::Site& Counts::site(uint64_t pc, Space space, Op op, uint32_t bytes) {
    const uint64_t kind = uint64_t(space) << 40 | uint64_t(op) << 32 | bytes;
    const uint64_t offset = pc - text_.begin;
    uint32_t* link = &first_site_[offset < first_site_.size() ? offset : first_site_.size() - 1];
    while (*link && sites_[*link].kind < kind) link = &sites_[*link].next;
    if (*link && sites_[*link].kind == kind) return sites_[*link];
    Site made{};
    made.count.pc = pc;
    made.count.space = static_cast<uint32_t>(space);
    made.count.op = static_cast<uint32_t>(op);
    made.count.bytes_per_lane = bytes;
    made.kind = kind;
    made.next = *link;
    *link = static_cast<uint32_t>(sites_.size());
    sites_.push_back(std::move(made));
    return sites_.back();
}

template <class Visit>
void Counts::visit_sites(const Visit& visit) const {
    for (const uint32_t first : first_site_) {
        for (uint32_t index = first; index; index = sites_[index].next) visit(sites_[index]);
    }
}

void Counts::sample(Site& site, const Request& request, const WarpAccess& access, uint64_t block) {
    if (site.samples.size() == kSamples) return;
    if (!site.samples.empty() && site.samples.front().block != block) return;
    RequestSample sample{};
    sample.pc = request.pc;
    sample.space = site.count.space;
    sample.op = site.count.op;
    sample.bytes_per_lane = request.bytes;
    sample.mask = access.mask;
    sample.block = block;
    sample.warp = request.warp;
    for (uint32_t lanes = access.mask; lanes; lanes &= lanes - 1) {
        const uint32_t lane = static_cast<uint32_t>(__builtin_ctz(lanes));
        sample.addresses[lane] = access.addresses[lane];
    }
    site.samples.push_back(sample);
}

void Counts::add_global(const Request& request, const WarpAccess& access, uint64_t block) {
    const GlobalCost cost = global_cost(access);
    Site& at = site(request.pc, Space::global, request.op, request.bytes);
    at.count.requests++;
    at.count.lanes += lanes_of(access.mask);
    at.count.sectors += cost.sectors;
    at.count.ideal_sectors += cost.ideal_sectors;
    at.count.worst = std::max(at.count.worst, cost.sectors);
    if (access.serialises) {
        at.count.wavefronts += cost.same_address;
        at.count.ideal_wavefronts++;
    }
    sample(at, request, access, block);
}

void Counts::add_shared(const Request& request, const WarpAccess& access, uint64_t block) {
    const SharedCost cost = shared_cost(access);
    Site& at = site(request.pc, Space::shared, request.op, request.bytes);
    at.count.requests++;
    at.count.lanes += lanes_of(access.mask);
    at.count.wavefronts += cost.wavefronts;
    at.count.ideal_wavefronts += cost.ideal_wavefronts;
    at.count.worst = std::max(at.count.worst, cost.worst);
    sample(at, request, access, block);
}

void Counts::add_local(const Request& request, const WarpAccess& access) {
    const GlobalCost cost = local_cost(access);
    SiteCount& count = site(request.pc, Space::local, request.op, request.bytes).count;
    count.requests++;
    count.lanes += lanes_of(access.mask);
    count.sectors += cost.sectors;
    count.ideal_sectors += cost.ideal_sectors;
    count.worst = std::max(count.worst, cost.sectors);
}

void Counts::add_constant(const Request& request, const WarpAccess& access) {
    const uint32_t addresses = distinct_addresses(access);
    SiteCount& count = site(request.pc, Space::constant, request.op, request.bytes).count;
    count.requests++;
    count.lanes += lanes_of(access.mask);
    count.wavefronts += addresses;
    count.ideal_wavefronts++;
    count.worst = std::max(count.worst, addresses);
}

void Counts::add_step(uint64_t pc, uint32_t mask) {
    const uint64_t offset = pc - text_.begin;
    uint32_t& index = step_[offset < step_.size() ? offset : step_.size() - 1];
    if (index == 0) {
        index = static_cast<uint32_t>(steps_.size());
        steps_.push_back({pc, 0, 0});
    }
    steps_[index].steps++;
    steps_[index].lanes += lanes_of(mask);
}

void Counts::add(const Counts& other) {
    for (size_t i = 1; i < other.sites_.size(); i++) {
        const Site& part = other.sites_[i];
        const SiteCount& count = part.count;
        Site& sum = site(count.pc, static_cast<Space>(count.space), static_cast<Op>(count.op), count.bytes_per_lane);
        add_up(sum.count, count);
        if (part.samples.empty()) continue;
        if (sum.samples.empty() || part.samples.front().block < sum.samples.front().block) sum.samples = part.samples;
    }
    for (size_t i = 1; i < other.steps_.size(); i++) {
        const StepCount& part = other.steps_[i];
        add_step(part.pc, 0);
        StepCount& sum = steps_[step_[std::min<uint64_t>(part.pc - text_.begin, step_.size() - 1)]];
        sum.steps += part.steps - 1;
        sum.lanes += part.lanes;
    }
}

std::vector<SiteCount> Counts::sites(uint64_t base) const {
    std::vector<SiteCount> all;
    visit_sites([&](const Site& site) {
        all.push_back(site.count);
        all.back().pc -= base;
    });
    return all;
}

std::vector<StepCount> Counts::steps(uint64_t base) const {
    std::vector<StepCount> all;
    for (const uint32_t index : step_) {
        if (index == 0) continue;
        all.push_back(steps_[index]);
        all.back().pc -= base;
    }
    return all;
}

std::vector<RequestSample> Counts::samples(uint64_t base) const {
    std::vector<RequestSample> all;
    visit_sites([&](const Site& site) {
        for (const RequestSample& each : site.samples) {
            all.push_back(each);
            all.back().pc -= base;
        }
    });
    return all;
}

}  // namespace lk
