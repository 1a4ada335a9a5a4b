// record.cpp: what the engine calls, and what is left of a launch at its end. See record.h.
#include "record.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "device_memory.h"
#include "recorder_state.h"

namespace lk {

namespace {

void sort_by_address(std::vector<AddressRange>& ranges) {
    const auto lower = [](const AddressRange& one, const AddressRange& other) { return one.begin < other.begin; };
    std::sort(ranges.begin(), ranges.end(), lower);
}

// The parts of the module's variables that lie in global memory.
std::vector<AddressRange> device_variables(const LaunchDescription& launch) {
    std::vector<AddressRange> holes = launch.constant_variables;
    sort_by_address(holes);
    std::vector<AddressRange> parts;
    uint64_t begin = launch.data.begin;
    for (const AddressRange& hole : holes) {
        if (hole.begin < begin || hole.end > launch.data.end) continue;
        if (hole.begin > begin) parts.push_back({begin, hole.begin});
        begin = hole.end;
    }
    if (launch.data.end > begin) parts.push_back({begin, launch.data.end});
    return parts;
}

uint32_t local_lanes(const Request& request) {
    uint32_t local_mask = 0;
    for (uint32_t lanes = request.mask; lanes; lanes &= lanes - 1) {
        const uint32_t lane = static_cast<uint32_t>(__builtin_ctz(lanes));
        if (request.addresses[lane] & kLocalMemory) local_mask |= 1u << lane;
    }
    return local_mask;
}

}  // namespace

Recorder::Recorder(LaunchRecord& launch, uint64_t shared_segment)
    : state_(std::make_unique<State>(launch.state(), shared_segment)) {
    const std::lock_guard<std::mutex> lock(launch.state().mutex);
    launch.state().storing.push_back(&state_->storing);
}

Recorder::~Recorder() {
    LaunchRecord::State& launch = state_->launch;
    const std::lock_guard<std::mutex> lock(launch.mutex);
    auto& storing = launch.storing;
    storing.erase(std::remove(storing.begin(), storing.end(), &state_->storing), storing.end());
    if (launch.description.profile) launch.counts.add(state_->counts);
    for (const auto& [key, found] : state_->repeated) {
        if (found.count) launch.repeat(found);
    }
    launch.blocks_run += state_->blocks_run;
    launch.block_barriers += state_->block_barriers;
    launch.warp_barriers += state_->warp_barriers;
    launch.bulk_copies += state_->bulk_copies;
    launch.bulk_in_flight = std::max(launch.bulk_in_flight, state_->bulk_in_flight);
}

void Recorder::join(AsyncChecks* checks, uint32_t rank, const std::vector<Peer>& peers) {
    state_->checks = checks;
    state_->rank = rank;
    state_->peers = peers.size() > 1 ? peers : std::vector<Peer>{};
    std::vector<uint64_t> numbers;
    for (const Peer& peer : state_->peers) numbers.push_back(peer.number);
    state_->order.join(std::move(numbers));
}

void Recorder::begin_block(uint64_t block) {
    state_->blocks_run++;
    state_->order.begin_block(block);
    state_->copies.begin_block();
}

void Recorder::end_block() {
    if (state_->doubt.address) state_->settle();
    state_->storing.store(kNothing);
}

Verdict Recorder::access(uint32_t thread, uint64_t address, uint32_t bytes, Op op, uint64_t pc) {
    return state_->access(thread, address, bytes, op, pc);
}

void Recorder::request(const Request& request) {
    const uint32_t shared_mask = state_->shared_lanes(request);
    if (shared_mask) state_->request_shared(request, shared_mask);
    const uint32_t local_mask = local_lanes(request);
    if (local_mask) state_->counts.add_local(request, {local_mask, request.bytes, false, false, request.addresses});
    const uint32_t global_mask = request.mask & ~shared_mask & ~local_mask;
    if (global_mask) state_->request_global(request, global_mask);
}

void Recorder::step(uint64_t pc, uint32_t mask) { state_->counts.add_step(pc, mask); }

void Recorder::block_barrier() {
    if (state_->doubt.address) state_->settle();
    state_->block_barriers++;
    state_->order.block_barrier();
    if (state_->checks) state_->checks->block_barrier(state_->rank);
}

void Recorder::warp_barrier(uint32_t warp, uint32_t mask) {
    if (state_->doubt.address) state_->settle();
    state_->warp_barriers++;
    state_->order.warp_barrier(warp, mask);
    if (state_->checks) state_->checks->warp_barrier(state_->rank, warp);
}

void Recorder::bulk_copy(uint64_t in_flight) {
    state_->bulk_copies++;
    state_->bulk_in_flight = std::max(state_->bulk_in_flight, in_flight);
}

void Recorder::cluster_barrier() { state_->order.cluster_barrier(); }

void Recorder::fence(uint32_t thread) { state_->order.fence(thread); }

void Recorder::release(uint32_t thread, uint64_t object) { state_->order.release(thread, object); }

void Recorder::acquire(uint32_t thread, uint64_t object) { state_->order.acquire(thread, object); }

void Recorder::copy_started(uint32_t thread, uint64_t to, uint32_t bytes, uint64_t pc, uint64_t barrier, uint32_t phase) {
    state_->copies.start(thread, to - state_->shared_begin, bytes, pc, barrier, phase);
}

void Recorder::copies_committed(uint32_t thread) { state_->copies.commit(thread); }

// The copy may have written until now: others are to be ordered after the wait, not after the start.
void Recorder::copies_awaited(uint32_t thread, uint32_t batches_left) {
    for (const AsyncCopy& copy : state_->copies.wait_for_batches(thread, batches_left)) {
        state_->access(thread, state_->shared_begin + copy.offset, copy.bytes, Op::store, copy.pc);
    }
}

void Recorder::barrier_awaited(uint64_t barrier, uint32_t phase) { state_->copies.wait_for_barrier(barrier, phase); }

LaunchRecord::LaunchRecord(const LaunchDescription& description, Findings& findings)
    : state_(std::make_unique<State>(description, findings)) {
    state_->shared_owner.resize(description.shared_segment_bytes);
    uint16_t number = 0;
    for (const SharedArray& array : description.shared_arrays) {
        number++;
        const uint64_t end = std::min<uint64_t>(array.offset + array.bytes, description.shared_segment_bytes);
        for (uint64_t byte = array.offset; byte < end; byte++) state_->shared_owner[byte] = number;
    }
    std::vector<AddressRange> ranges = device_variables(description);
    const auto& buffers = device_memory().buffers();
    ranges.insert(ranges.end(), buffers.begin(), buffers.end());
    if (const uint64_t heap = heap_begin()) ranges.push_back({heap, heap + kDeviceHeapBytes});
    sort_by_address(ranges);
    if (description.profile || description.footprint) {
        for (const AddressRange& range : ranges) state_->touched.push_back(std::make_unique<TouchedBuffer>(range));
    }
    if (description.check) GlobalShadows::instance().begin_launch(ranges, Segments::instance().begin_launch());
}

LaunchRecord::~LaunchRecord() = default;

void LaunchRecord::grid_barrier() { Segments::instance().raise_floor(); }

void LaunchRecord::finish() {
    State& state = *state_;
    if (!state.description.check) return;
    for (const FindingRecord& each : state.undecided.records()) {
        const bool first_loads = static_cast<Op>(each.op) == Op::load;
        if (!state.sites.rechecked(first_loads ? each.pc : each.other_pc)) state.report(each);
    }
    // A read that races with the write it should have waited for meets an unwritten byte under some schedules only.
    for (const FindingRecord& each : state.unwritten.records()) {
        const FindingRecord read = state.relocated(each);
        const auto races = [&](const FindingRecord& other) {
            const auto kind = static_cast<FindingKind>(other.kind);
            return (kind == FindingKind::shared_race || kind == FindingKind::global_race) &&
                   (other.pc == read.pc || other.other_pc == read.pc);
        };
        const auto& found = state.findings.records();
        if (std::none_of(found.begin(), found.end(), races)) state.report(each);
    }
    GlobalShadows::instance().end_launch();
}

std::vector<std::unique_ptr<TouchedBuffer>> LaunchRecord::take_footprint() { return std::exchange(state_->touched, {}); }

std::vector<SiteCount> LaunchRecord::sites() const { return state_->counts.sites(state_->description.object_address); }

std::vector<StepCount> LaunchRecord::steps() const { return state_->counts.steps(state_->description.object_address); }

std::vector<RequestSample> LaunchRecord::samples() const { return state_->counts.samples(state_->description.object_address); }

std::vector<unsigned char> LaunchRecord::totals() const {
    const State& state = *state_;
    Totals totals{};
    totals.blocks_run = state.blocks_run;
    totals.blocks_total = state.description.blocks_total;
    totals.block_barriers = state.block_barriers;
    totals.warp_barriers = state.warp_barriers;
    totals.bulk_copies = state.bulk_copies;
    totals.bulk_bytes_in_flight = state.bulk_in_flight;
    totals.findings_dropped = state.findings.dropped();
    for (const StepCount& step : steps()) {
        totals.steps += step.steps;
        totals.active_lanes += step.lanes;
    }
    std::vector<BufferUse> uses;
    std::vector<unsigned char> bitmaps;
    for (const auto& buffer : state.touched) {
        BufferUse use{};
        use.begin = buffer->begin;
        use.end = buffer->end;
        use.bytes_read = buffer->read.count();
        use.bytes_written = buffer->written.count();
        use.written_offset = bitmaps.size();
        if (use.bytes_read + use.bytes_written == 0) continue;
        if (use.bytes_written) buffer->written.append_to(bitmaps);
        totals.bytes_read += use.bytes_read;
        totals.bytes_written += use.bytes_written;
        uses.push_back(use);
    }
    totals.buffers = uses.size();
    const size_t head = sizeof totals + uses.size() * sizeof(BufferUse);
    for (BufferUse& use : uses) use.written_offset += head;
    std::vector<unsigned char> bytes(head);
    std::memcpy(bytes.data(), &totals, sizeof totals);
    if (!uses.empty()) std::memcpy(bytes.data() + sizeof totals, uses.data(), uses.size() * sizeof(BufferUse));
    bytes.insert(bytes.end(), bitmaps.begin(), bitmaps.end());
    return bytes;
}

}  // namespace lk
