// outcome.cpp: see outcome.h.
#include "outcome.h"

#include <algorithm>
#include <utility>

#include "journal.h"
#include "ordering.h"

namespace lk::host {

namespace {

constexpr double kShortest = 0.5;  // seconds: what a launch begins with after the program's time is up says nothing

// After these CUDA says nothing: the launch's result is wrong, or right by luck.
bool is_survived(FindingKind kind) {
    return kind == FindingKind::shared_race || kind == FindingKind::global_race ||
           kind == FindingKind::uninitialized_shared || kind == FindingKind::uninitialized_global ||
           kind == FindingKind::index_out_of_bounds ||  kind == FindingKind::absent_lane;
}

cudaError_t error_for(FindingKind kind) {
    switch (kind) {
        case FindingKind::out_of_bounds:
        case FindingKind::shared_out_of_bounds:
        case FindingKind::illegal_address:
        case FindingKind::stack_overflow: return cudaErrorIllegalAddress;
        case FindingKind::misaligned: return cudaErrorMisalignedAddress;
        case FindingKind::assertion: return cudaErrorAssert;
        case FindingKind::timeout: return cudaErrorLaunchTimeout;
        default: return cudaErrorLaunchFailure;
    }
}

template <class Record>
std::string bytes_of(const std::vector<Record>& records) {
    return std::string(reinterpret_cast<const char*>(records.data()), records.size() * sizeof(Record));
}

std::vector<std::shared_ptr<const TouchedBuffer>>& footprint() {
    static std::vector<std::shared_ptr<const TouchedBuffer>> of_last_launch;
    return of_last_launch;
}

void keep_footprint(LaunchRecord& record) {
    footprint().clear();
    for (auto& buffer : record.take_footprint()) {
        if (buffer->read.count() + buffer->written.count()) footprint().push_back(std::move(buffer));
    }
}

cudaError_t error_of(const Launch& launch) {
    if (launch.failure) return cudaErrorLaunchFailure;
    if (!launch.stopped) return cudaSuccess;
    for (const FindingRecord& finding : launch.findings.records()) {
        const auto kind = static_cast<FindingKind>(finding.kind);
        if (!is_survived(kind)) return error_for(kind);
    }
    return launch.timed_out ? cudaErrorLaunchTimeout : cudaErrorLaunchFailure;
}

// A kernel that the program's time limit cuts off is at fault only where it was stuck: check takes 30 times as long as a
// plain run, and a large grid is no error.
std::vector<FindingRecord> found_in(const Launch& launch) {
    std::vector<FindingRecord> records = launch.findings.records();
    if (!launch.timed_out || (launch.stuck && launch.seconds > kShortest)) return records;
    const auto is_timeout = [](const FindingRecord& one) { return static_cast<FindingKind>(one.kind) == FindingKind::timeout; };
    records.erase(std::remove_if(records.begin(), records.end(), is_timeout), records.end());
    journal().note_once("when the time was up, a kernel had run " + std::to_string(launch.blocks_run) + " of its " +
                        std::to_string(launch.block_count()) + " blocks: it was slow, not stuck");
    return records;
}

}  // namespace

std::vector<std::shared_ptr<const TouchedBuffer>> take_kernel_footprint() { return std::exchange(footprint(), {}); }

LoadedModule& program() {
    static LoadedModule the_program;
    return the_program;
}

Outcome run_and_collect(Launch& launch, bool with_counts) {
    launch.description.footprint = ordering().watches_kernels();
    run_launch(launch);
    if (launch.description.footprint) keep_footprint(*launch.record);
    Outcome outcome;
    outcome.error = error_of(launch);
    outcome.seconds = launch.seconds;
    if (launch.failure) journal().note_once(launch.failure);
    outcome.sections.push_back(bytes_of(found_in(launch)));
    if (launch.record && with_counts) {
        outcome.sections.push_back(bytes_of(launch.record->sites()));
        outcome.sections.push_back(bytes_of(launch.record->steps()));
        outcome.sections.push_back(bytes_of(launch.record->samples()));
        outcome.sections.push_back(bytes_of(launch.record->totals()));
    }
    return outcome;
}

}  // namespace lk::host
