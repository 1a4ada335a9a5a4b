// counts.h: what the instructions of a kernel did, added up: by place in the code, space, kind of access and width.
#pragma once

#include <cstdint>
#include <vector>

#include "record.h"
#include "request_cost.h"
#include "touched.h"

namespace lk {

class Counts {
public:
    explicit Counts(AddressRange text) : text_(text), first_site_(text.end - text.begin + 1), step_(text.end - text.begin + 1) {}

    // The lanes of access.mask, all in one space. block: where it happened, for the samples.
    void add_global(const Request& request, const WarpAccess& access, uint64_t block);
    void add_shared(const Request& request, const WarpAccess& access, uint64_t block);
    void add_local(const Request& request, const WarpAccess& access);
    void add_constant(const Request& request, const WarpAccess& access);
    void add_step(uint64_t pc, uint32_t mask);
    void add(const Counts& other);

    // Program counters relative to base; by place, so that two runs of one launch give the same bytes.
    std::vector<SiteCount> sites(uint64_t base) const;
    std::vector<StepCount> steps(uint64_t base) const;
    std::vector<RequestSample> samples(uint64_t base) const;

private:
    static constexpr size_t kSamples = 4;  // a site: the first ones of the first block that came there
    struct Site {
        SiteCount count;
        uint64_t kind;  // of access: space, operation and width
        uint32_t next;  // the site of the next higher kind at the same place, 0 when there is none
        std::vector<RequestSample> samples;
    };
    Site& site(uint64_t pc, Space space, Op op, uint32_t bytes);
    void sample(Site& site, const Request& request, const WarpAccess& access, uint64_t block);
    template <class Visit>
    void visit_sites(const Visit& visit) const;

    AddressRange text_;
    std::vector<uint32_t> first_site_;  // by place: index into sites_, 0 when there is none
    std::vector<uint32_t> step_;        // the same for steps_
    std::vector<Site> sites_{1};
    std::vector<StepCount> steps_{1};
};

}  // namespace lk
