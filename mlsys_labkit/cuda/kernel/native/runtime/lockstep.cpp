// lockstep.cpp: forms a warp's steps and requests from what its lanes did.
#include "lockstep.h"

#include <algorithm>

#include "scheduler.h"

namespace lk {

namespace {

// A basic block may make more accesses than one: room for them behind a turn's end. Odd in cache lines, so that the lanes'
// events do not compete for the same sets.
constexpr size_t kSpareEvents = 36;
// A lane that others overtake for so many turns runs on without being replayed: they may be waiting for what it will do.
constexpr u32 kMostOvertaken = 256;

bool at_access(const LaneTrace& lane) { return !lane.empty() && lane.head().kind == Kind::access; }
u64 head_rank(const LaneTrace& lane) { return lane.empty() ? 0 : lane.head().value; }

// The accesses with which the lanes of `group` go on, as requests: equal places together.
void replay_accesses(Block& block, u32 warp, Trace& trace, u32 group) {
    Request request;
    request.warp = warp;
    for (u32 left = group; left;) {
        const LaneTrace& first = trace.lanes[lowest_lane(left)];
        if (!at_access(first)) {
            left &= left - 1;
            continue;
        }
        const Event event = first.head();
        request.mask = 0;
        for (u32 lanes = left; lanes; lanes &= lanes - 1) {
            u32 lane = lowest_lane(lanes);
            LaneTrace& other = trace.lanes[lane];
            if (!at_access(other) || other.head().pc != event.pc || other.head().bytes != event.bytes) continue;
            request.addresses[lane] = other.head().value;
            request.mask |= 1u << lane;
            other.pop();
        }
        request.pc = block.launch->module->text.begin + event.pc;
        request.bytes = event.bytes;
        request.op = event.op;
        block.recorder->request(request);
    }
}

}  // namespace

LaneTrace::LaneTrace() : events_(kTurnEvents + kSpareEvents) {
    end_ = events_.data() + events_.size();
    clear();
}

void LaneTrace::clear() {
    head_ = tail_ = events_.data();
    turn_end_ = head_ + kTurnEvents;
    held_back = 0;
}

void LaneTrace::grow() {
    size_t head = size_t(head_ - events_.data());
    size_t tail = size_t(tail_ - events_.data());
    size_t turn_end = size_t(turn_end_ - events_.data());
    events_.resize(events_.size() * 2);
    head_ = events_.data() + head;
    tail_ = events_.data() + tail;
    turn_end_ = events_.data() + turn_end;
    end_ = events_.data() + events_.size();
}

void LaneTrace::extend_turn() {
    while (size_t(end_ - tail_) < kTurnEvents) grow();
    turn_end_ = tail_ + kTurnEvents;
}

void take_trace(Worker& worker, Warp& warp) {
    if (worker.free_traces.empty()) worker.free_traces.push_back(std::make_unique<Trace>());
    warp.trace = worker.free_traces.back().release();
    worker.free_traces.pop_back();
}

void give_trace_back(Worker& worker, Warp& warp) {
    for (LaneTrace& lane : warp.trace->lanes) lane.clear();
    worker.free_traces.emplace_back(warp.trace);
    warp.trace = nullptr;
}

void trace_resume(Block& block) {
    const Thread& thread = *block.thread;
    u32 pc = u32(thread.pc - block.launch->module->text.begin);
    block.trace->push({place_rank(thread.frame_depth(), pc), pc, 0, Op::load, Kind::resume});
}

u32 lanes_with_room(Warp& warp) {
    u32 room = 0;
    for (u32 lanes = warp.ready; lanes; lanes &= lanes - 1) {
        LaneTrace& lane = warp.trace->lanes[lowest_lane(lanes)];
        if (lane.empty()) {
            lane.clear();
        } else if (!lane.has_room() && ++lane.held_back % kMostOvertaken == 0) {
            lane.extend_turn();
        }
        room |= u32(lane.has_room()) << lowest_lane(lanes);
    }
    return room;
}

void replay(Block& block, u32 warp_number) {
    Warp& warp = block.warps[warp_number];
    Trace& trace = *warp.trace;
    u64* rank = trace.rank;
    for (u32 lane = 0; lane < kWarpSize; lane++) rank[lane] = head_rank(trace.lanes[lane]);
    for (;;) {
        u64 best = 0;
        u64 different = 0;
        for (u32 lane = 0; lane < kWarpSize; lane++) {
            best = std::max(best, rank[lane]);
            different |= rank[lane] ^ rank[0];
        }
        if (!best) return;
        u32 group = ~0u;
        if (different) {
            group = 0;
            u32 unknown = 0;
            for (u32 lane = 0; lane < kWarpSize; lane++) {
                group |= u32(rank[lane] == best) << lane;
                unknown |= u32(rank[lane] == 0) << lane;
            }
            if (unknown & warp.ready) return;
        }
        if (trace.lanes[lowest_lane(group)].head().kind == Kind::step) {
            block.recorder->step(block.launch->module->text.begin + rank_pc(best), group);
        }
        for (u32 lanes = group; lanes; lanes &= lanes - 1) trace.lanes[lowest_lane(lanes)].pop();
        replay_accesses(block, warp_number, trace, group);
        for (u32 lanes = group; lanes; lanes &= lanes - 1) {
            u32 lane = lowest_lane(lanes);
            rank[lane] = head_rank(trace.lanes[lane]);
        }
    }
}

}  // namespace lk
