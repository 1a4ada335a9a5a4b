// record_profile.cpp: a warp's request, shared out over the spaces that its lanes went to.
#include "recorder_state.h"

namespace lk {

uint32_t Recorder::State::shared_lanes(const Request& request) const {
    uint32_t shared_mask = 0;
    for (uint32_t lanes = request.mask; lanes; lanes &= lanes - 1) {
        const uint32_t lane = static_cast<uint32_t>(__builtin_ctz(lanes));
        if (request.addresses[lane] - shared_begin < shared_bytes) shared_mask |= 1u << lane;
    }
    return shared_mask;
}

void Recorder::State::request_shared(const Request& request, uint32_t mask) {
    uint64_t offsets[kLanes];
    for (uint32_t lanes = mask; lanes; lanes &= lanes - 1) {
        const uint32_t lane = static_cast<uint32_t>(__builtin_ctz(lanes));
        offsets[lane] = request.addresses[lane] - shared_begin;
    }
    counts.add_shared(request, {mask, request.bytes, is_atomic(request.op), is_load(request.op), offsets}, order.block());
}

void Recorder::State::request_global(const Request& request, uint32_t mask) {
    uint32_t counted = mask;
    uint32_t constant = 0;  // lanes that read __constant__ variables
    uint64_t run_begin = 0;  // neighbours are marked together
    uint64_t run_end = 0;
    const auto mark_run = [&] {
        if (run_begin == run_end) return;
        const uint64_t first = run_begin - last_touched->begin;
        if (reads(request.op)) last_touched->read.set(first, run_end - run_begin);
        if (writes(request.op)) last_touched->written.set(first, run_end - run_begin);
        run_begin = run_end = 0;
    };
    for (uint32_t lanes = mask; lanes; lanes &= lanes - 1) {
        const uint32_t lane = static_cast<uint32_t>(__builtin_ctz(lanes));
        const uint64_t address = request.addresses[lane];
        if (run_begin != run_end && address == run_end && last_touched->holds(address, request.bytes)) {
            run_end += request.bytes;
            continue;
        }
        if (run_begin == address && run_end - run_begin >= request.bytes) continue;
        mark_run();
        if (!last_touched || !last_touched->holds(address, request.bytes)) {
            TouchedBuffer* found = find_range(launch.touched, address);
            if (!found || !found->holds(address, request.bytes)) {
                if (uint64_t offset; home_of(address, &offset)) {  // of another block of the cluster
                    counted &= ~(1u << lane);
                } else if (!writes(request.op) && is_constant(launch.description, address, request.bytes)) {
                    counted &= ~(1u << lane);
                    if (is_constant_variable(launch.description, address, request.bytes)) constant |= 1u << lane;
                } else if (!in_heap(reinterpret_cast<void*>(address))) out_of_bounds(request, lane);
                continue;
            }
            last_touched = found;
        }
        run_begin = address;
        run_end = address + request.bytes;
    }
    mark_run();
    if (constant) counts.add_constant(request, {constant, request.bytes, false, true, request.addresses});
    if (counted) counts.add_global(request, {counted, request.bytes, is_atomic(request.op), is_load(request.op), request.addresses}, order.block());
}

void Recorder::State::out_of_bounds(const Request& request, uint32_t lane) {
    Present now{order, {}, request.op};
    now.cell.thread = request.warp * kLanes + lane;
    out_of_bounds(now, request.addresses[lane], request.bytes, request.pc);
}

}  // namespace lk
