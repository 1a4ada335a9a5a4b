// warp.cpp: lanes of a warp that act together: shuffles, votes, barriers, and meetings of lanes that stand at one place.
//
// A lane that calls a warp operation leaves a note of it in its thread and waits. When all lanes named in the mask have done
// so, or have left the kernel, the scheduler carries the operation out from note to note, and all of them may go on.
#include <algorithm>
#include <cstring>

#include "lockstep.h"
#include "scheduler.h"
#include "wgmma.h"

namespace lk {

namespace {

// How often lanes at another place may be let go from a meeting before a lane: it may be what they are waiting for.
constexpr u32 kPatience = 32;

Thread& thread_of(Block& block, u32 lane) { return block.threads[block.warp * kWarpSize + lane]; }
WarpOperation& operation_of(Block& block, u32 lane) { return thread_of(block, lane).operation; }

// The lane whose value `lane` reads.
u32 shuffle_source(const WarpOperation& operation, u32 lane) {
    u32 width = u32(operation.width);
    u32 place = lane % width;
    u32 base = lane - place;
    u32 argument = u32(operation.argument);
    switch (operation.mode) {
        case lk_shuffle_index: return base + argument % width;
        case lk_shuffle_up: return argument > place ? lane : lane - argument;
        case lk_shuffle_down: return argument >= width - place ? lane : lane + argument;
        default: return (lane ^ argument) < base + width ? lane ^ argument : lane;
    }
}

void report_absent_lane(Block& block, u32 lane, u32 absent, u32 mask) {
    u32 first = block.warp * kWarpSize;
    FindingRecord finding = make_finding(block, FindingKind::absent_lane, first + lane, thread_of(block, lane).pc);
    if (first + absent < block.thread_count) finding.other_thread = first + absent;
    finding.values[0] = mask;
    finding.values[1] = absent;
    block.launch->findings.report(finding);
}

// A mask names a lane that ended before. Lanes that have returned need not take part; explain.py tells these from lanes that
// passed the call by.
void report_named_lane(Block& block, u32 group) {
    const Warp& warp = block.warps[block.warp];
    const u32 lane = lowest_lane(group);
    const u32 mask = operation_of(block, lane).mask;
    const u32 gone = mask & warp.lanes & warp.done;
    if (!gone || block.mode != Mode::check) return;
    const u32 first = block.warp * kWarpSize;
    FindingRecord finding = make_finding(block, FindingKind::absent_lane, first + lane, thread_of(block, lane).pc);
    finding.other_thread = first + lowest_lane(gone);
    finding.values[0] = mask;
    finding.values[1] = lowest_lane(gone);
    finding.bytes = kNamedOnly;
    block.launch->findings.report(finding);
}

constexpr int kWordBytes = sizeof(WarpOperation::word);

void shuffle(Block& block, u32 group) {
    bool all_present = true;
    for (u32 lanes = group; lanes; lanes &= lanes - 1) {
        u32 lane = lowest_lane(lanes);
        WarpOperation& operation = operation_of(block, lane);
        u32 source = shuffle_source(operation, lane);
        if (group >> source & 1) {
            const WarpOperation& other = operation_of(block, source);
            if (operation.size <= kWordBytes) operation.answer_word = other.word;
            else memcpy(operation.result, other.value, size_t(operation.size));
            continue;
        }
        operation.answer_word = 0;
        if (operation.size > kWordBytes) memset(operation.result, 0, size_t(operation.size));
        report_absent_lane(block, lane, source, operation.mask);
        all_present = false;
    }
    if (all_present) report_named_lane(block, group);
}

void ballot(Block& block, u32 group) {
    u32 votes = 0;
    for (u32 lanes = group; lanes; lanes &= lanes - 1) {
        u32 lane = lowest_lane(lanes);
        votes |= u32(operation_of(block, lane).predicate) << lane;
    }
    for (u32 lanes = group; lanes; lanes &= lanes - 1) operation_of(block, lowest_lane(lanes)).answer = votes;
}

void match(Block& block, u32 group) {
    for (u32 left = group; left;) {
        const WarpOperation& first = operation_of(block, lowest_lane(left));
        u32 equal = 0;
        for (u32 lanes = left; lanes; lanes &= lanes - 1) {
            u32 lane = lowest_lane(lanes);
            bool same = memcmp(first.value, operation_of(block, lane).value, size_t(first.size)) == 0;
            equal |= u32(same) << lane;
        }
        for (u32 lanes = equal; lanes; lanes &= lanes - 1) operation_of(block, lowest_lane(lanes)).answer = equal;
        left &= ~equal;
    }
}

void gather(Block& block, u32 group) {
    for (u32 lanes = group; lanes; lanes &= lanes - 1) {
        WarpOperation& operation = operation_of(block, lowest_lane(lanes));
        size_t size = size_t(operation.size);
        memset(operation.result, 0, size * kWarpSize);
        for (u32 sources = group; sources; sources &= sources - 1) {
            u32 source = lowest_lane(sources);
            memcpy(static_cast<char*>(operation.result) + source * size, operation_of(block, source).value, size);
        }
        operation.answer = group;
    }
}

void carry_out(Block& block, u32 group) {
    const Operation kind = operation_of(block, lowest_lane(group)).kind;
    if (kind != Operation::shuffle) report_named_lane(block, group);
    switch (kind) {
        case Operation::barrier:
            if (block.recorder) block.recorder->warp_barrier(block.warp, group);
            break;
        case Operation::ballot: ballot(block, group); break;
        case Operation::shuffle: shuffle(block, group); break;
        case Operation::match: match(block, group); break;
        case Operation::gather: gather(block, group); break;
        case Operation::product: multiply_warpgroup(block, group); break;
    }
}

// The lanes that a lane's operation still has to do with: those of its mask that exist and have not exited.
u32 partners(const Warp& warp, u32 mask) { return mask & warp.lanes & ~warp.done; }

// Carries out whatever warp operation is complete. False when none is.
bool complete_operations(Block& block) {
    Warp& warp = block.warps[block.warp];
    bool any = false;
    for (u32 left = warp.at_operation; left;) {
        u32 lane = lowest_lane(left);
        const WarpOperation& operation = operation_of(block, lane);
        u32 group = partners(warp, operation.mask);
        left &= ~(1u << lane);
        if (group & ~warp.at_operation) continue;
        bool agreed = true;
        for (u32 lanes = group; lanes; lanes &= lanes - 1) {
            const WarpOperation& other = operation_of(block, lowest_lane(lanes));
            agreed = agreed && other.kind == operation.kind && other.size == operation.size &&
                     partners(warp, other.mask) == group;
        }
        if (!agreed) continue;
        carry_out(block, group);
        warp.at_operation &= ~group;
        warp.ready |= group;
        left &= ~group;
        any = true;
    }
    return any;
}

// Lets the lanes go that met at the place that comes first: the deepest frame, the lowest address.
void open_meeting(Block& block) {
    Warp& warp = block.warps[block.warp];
    auto rank = [&](u32 lane) {
        const Thread& thread = thread_of(block, lane);
        u64 place = place_rank(thread.frame_depth(), thread.pc - block.launch->module->text.begin);
        return thread.patience >= kPatience ? ~u64{0} : place;
    };
    u64 best = 0;
    for (u32 lanes = warp.at_meeting; lanes; lanes &= lanes - 1) best = std::max(best, rank(lowest_lane(lanes)));
    u32 group = 0;
    for (u32 lanes = warp.at_meeting; lanes; lanes &= lanes - 1) {
        u32 lane = lowest_lane(lanes);
        bool goes = rank(lane) == best;
        group |= u32(goes) << lane;
        thread_of(block, lane).patience = goes ? 0 : thread_of(block, lane).patience + 1;
    }
    warp.met = group;
    warp.meeting_waits = 0;
    warp.at_meeting &= ~group;
    warp.ready |= group;
}

// The warp's turn is over, and lanes that have not come to the meeting run on.
void lose_patience(Block& block) {
    Warp& warp = block.warps[block.warp];
    warp.meeting_waits += block.worker->turn;
    if (warp.meeting_waits < kMeetingWait) return;
    block.launch->lanes_meet.store(false, std::memory_order_relaxed);
    open_meeting(block);
}

// The operation of the thread that runs now, to be filled in.
WarpOperation& new_operation(Block& block, Operation kind, u32 mask) {
    WarpOperation& operation = block.thread->operation;
    operation.kind = kind;
    operation.mask = mask;
    operation.size = 0;
    if (!(mask & current_bit(block))) {
        report_absent_lane(block, block.lane(), block.lane(), mask);
        operation.mask |= current_bit(block);
    }
    return operation;
}

u32 wait_for_others(Block& block, WarpOperation& operation) {
    wait_in(block, &Warp::at_operation);
    return operation.answer;
}

}  // namespace

void run_warp(Block& block, u32 warp_number) {
    Warp& warp = block.warps[warp_number];
    bool traced = block.mode == Mode::profile;
    if (traced && !warp.trace) take_trace(*block.worker, warp);
    block.warp = warp_number;
    block.warp_budget = block.worker->turn;
    while (!stopped(block)) {
        if (warp.ready) {
            if (block.warp_budget <= 0) {
                if (warp.at_meeting) lose_patience(block);
                // Something may be spinning: from now on others get their turns sooner.
                u32& turn = block.worker->turn;
                turn = std::max(kShortTurn, turn / 2);
                return;
            }
            give_turns(block, warp_number, traced ? lanes_with_room(warp) : warp.ready);
            if (traced && !stopped(block)) replay(block, warp_number);
            if (warp.ready) block.warp_budget -= kTurnEvents;
        } else if (warp.at_operation && complete_operations(block)) {
            block.warp_budget--;
        } else if (warp.at_meeting) {
            open_meeting(block);
            block.warp_budget -= kTurnEvents;
        } else {
            break;
        }
    }
    if (traced) give_trace_back(*block.worker, warp);
}

u32 meet(Block& block) {
    wait_in(block, &Warp::at_meeting);
    return block.warps[block.warp].met;
}

bool report_stuck_operation(Block& block) {
    for (u32 warp_number = 0; warp_number < block.warp_count; warp_number++) {
        const Warp& warp = block.warps[warp_number];
        if (!warp.at_operation) continue;
        u32 lane = lowest_lane(warp.at_operation);
        u32 first = warp_number * kWarpSize;
        const Thread& thread = block.threads[first + lane];
        u32 mask = thread.operation.mask;
        u32 missing = partners(warp, mask) & ~warp.at_operation;
        u32 others = missing ? missing : warp.at_operation & ~(1u << lane);
        FindingRecord finding = make_finding(block, FindingKind::divergent_barrier, first + lane, thread.pc);
        finding.values[0] = mask;
        finding.values[1] = warp.at_operation;
        if (others) {
            finding.other_thread = first + lowest_lane(others);
            finding.other_pc = file_pc(block, block.threads[finding.other_thread].pc);
        }
        block.launch->findings.report(finding);
        return true;
    }
    return false;
}

}  // namespace lk

using namespace lk;

void lk_warp_barrier(unsigned mask) {
    Block& block = enter_runtime();
    wait_for_others(block, new_operation(block, Operation::barrier, mask));
}

unsigned lk_ballot(unsigned mask, int predicate) {
    Block& block = enter_runtime();
    WarpOperation& operation = new_operation(block, Operation::ballot, mask);
    operation.predicate = predicate != 0;
    return wait_for_others(block, operation);
}

void lk_shuffle(unsigned mask, const void* value, void* result, int size, int mode, int argument, int width) {
    Block& block = enter_runtime();
    WarpOperation& operation = new_operation(block, Operation::shuffle, mask);
    operation.size = size;
    operation.mode = mode;
    operation.argument = argument;
    operation.width = width;
    operation.value = value;
    operation.result = result;
    if (size == 4) memcpy(&operation.word, value, 4);
    else if (size <= kWordBytes) memcpy(&operation.word, value, size_t(size));
    wait_for_others(block, operation);
    if (size == 4) memcpy(result, &operation.answer_word, 4);
    else if (size <= kWordBytes) memcpy(result, &operation.answer_word, size_t(size));
}

unsigned lk_match(unsigned mask, const void* value, int size) {
    Block& block = enter_runtime();
    WarpOperation& operation = new_operation(block, Operation::match, mask);
    operation.size = size;
    operation.value = value;
    return wait_for_others(block, operation);
}

unsigned lk_gather(unsigned mask, const void* value, void* values, int size) {
    Block& block = enter_runtime();
    WarpOperation& operation = new_operation(block, Operation::gather, mask);
    operation.size = size;
    operation.value = value;
    operation.result = values;
    return wait_for_others(block, operation);
}

int lk_wgmma_multiply(const lk_wgmma* asked) {
    Block& block = enter_runtime();
    WarpOperation& operation = new_operation(block, Operation::product, ~0u);
    operation.value = asked;
    return wait_for_others(block, operation) == ~0u;
}

unsigned lk_active_mask() { return meet(enter_runtime()); }

unsigned lk_lane() { return current()->lane(); }
