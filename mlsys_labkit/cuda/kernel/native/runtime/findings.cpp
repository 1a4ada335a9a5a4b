// findings.cpp: see findings.h.
#include "findings.h"

#include <algorithm>
#include <utility>

namespace lk {

namespace {

// Which of two racing accesses is met first depends on the schedule: the report does not.
FindingRecord in_order(FindingRecord finding) {
    const auto kind = static_cast<FindingKind>(finding.kind);
    const bool roles_differ = kind == FindingKind::unfinished_copy || kind > FindingKind::index_out_of_bounds;
    if (roles_differ || finding.other_pc == 0 || finding.pc <= finding.other_pc) return finding;
    std::swap(finding.pc, finding.other_pc);
    std::swap(finding.op, finding.other_op);
    std::swap(finding.block, finding.other_block);
    std::swap(finding.thread, finding.other_thread);
    return finding;
}

bool same_place(const FindingRecord& one, const FindingRecord& other) {
    return one.kind == other.kind && one.pc == other.pc && one.other_pc == other.other_pc;
}

}  // namespace

FindingRecord new_finding(FindingKind kind, uint64_t block, uint64_t thread) {
    FindingRecord finding{};
    finding.kind = static_cast<uint32_t>(kind);
    finding.block = block;
    finding.thread = thread;
    finding.other_block = kNobody;
    finding.other_thread = kNobody;
    finding.count = 1;
    return finding;
}

void Findings::report(const FindingRecord& finding) {
    const std::lock_guard<std::mutex> lock(mutex_);
    add(finding);
}

bool Findings::try_report(const FindingRecord& finding) {
    const std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
    if (!lock.owns_lock()) return false;
    add(finding);
    return true;
}

bool Findings::count_again(const FindingRecord& finding) {
    const std::lock_guard<std::mutex> lock(mutex_);
    FindingRecord* before = known(in_order(finding));
    if (before) before->count += finding.count;
    return before != nullptr;
}

FindingRecord* Findings::known(const FindingRecord& ordered) {
    const auto found = std::find_if(records_.begin(), records_.end(),
                                    [&](const FindingRecord& each) { return same_place(each, ordered); });
    return found == records_.end() ? nullptr : &*found;
}

void Findings::add(const FindingRecord& finding) {
    if (records_.capacity() == 0) records_.reserve(kMost);
    reported_.fetch_add(1, std::memory_order_relaxed);
    const FindingRecord ordered = in_order(finding);
    if (FindingRecord* before = known(ordered)) {
        before->count += ordered.count;
    } else if (records_.size() < kMost) {
        records_.push_back(ordered);
    } else {
        dropped_++;
    }
}

}  // namespace lk
