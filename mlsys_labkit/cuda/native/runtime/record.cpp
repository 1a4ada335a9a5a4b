// record.cpp: see record.h. Looks at each access in turn: where it goes, whether it may, whom it clashes with.
#include "record.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <unordered_map>

#include "counts.h"
#include "device_heap.h"
#include "device_memory.h"
#include "order.h"
#include "shadow_global.h"
#include "shadow_shared.h"
#include "sites.h"
#include "touched.h"

namespace lk {

namespace {

constexpr uint64_t kPageBytes = 4096;
constexpr uint64_t kNearShared = 64 << 10;  // so far from shared memory, an address is a wrong index into it
constexpr uint64_t kNothing = 0;            // no address

bool writes(Op op) { return !is_load(op); }
bool reads(Op op) { return op != Op::store && op != Op::volatile_store && op != Op::atomic_store; }

// Whether the bytes beyond a buffer's ends are mapped and nobody's: the rest of its pages.
bool in_slack(const Buffer& buffer, uint64_t address, uint64_t bytes) {
    const uint64_t first = buffer.begin & ~(kPageBytes - 1);
    const uint64_t end = (buffer.end + kPageBytes - 1) & ~(kPageBytes - 1);
    return address >= first && address + bytes <= end;
}

bool is_constant(const LaunchDescription& launch, uint64_t address, uint64_t bytes) {
    const auto holds = [&](const AddressRange& range) { return range.holds(address, bytes); };
    return holds(launch.constants) || std::any_of(launch.constant_variables.begin(), launch.constant_variables.end(), holds);
}

// The parts of the module's variables that lie in global memory.
std::vector<AddressRange> device_variables(const LaunchDescription& launch) {
    std::vector<AddressRange> holes = launch.constant_variables;
    std::sort(holes.begin(), holes.end(), [](const AddressRange& one, const AddressRange& other) { return one.begin < other.begin; });
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

uint64_t key_of(const FindingRecord& found, uint32_t site, uint32_t other_site) {
    return uint64_t{found.kind} << 32 | uint64_t{site} << 16 | other_site;
}

}  // namespace

struct LaunchRecord::State {
    State(const LaunchDescription& given, Findings& all)
        : description(given), findings(all), sites(given.text.begin, given.text.end - given.text.begin), counts(given.text) {}

    // may_be_rechecked: a plain read beside an atomic, see Sites::mark_rechecked; decided at the end.
    void report(const FindingRecord& found, bool may_be_rechecked = false) {
        (may_be_rechecked ? undecided : findings).report(may_be_rechecked ? found : relocated(found));
    }
    // Counts again what one of the lists knows.
    void repeat(const FindingRecord& found) {
        if (!undecided.count_again(found) && !unwritten.count_again(found)) findings.count_again(relocated(found));
    }
    // As Python gets it: places relative to the object file.
    FindingRecord relocated(FindingRecord finding) const {
        if (finding.pc) finding.pc -= description.object_address;
        if (finding.other_pc) finding.other_pc -= description.object_address;
        return finding;
    }

    const LaunchDescription description;
    Findings& findings;
    Findings undecided;  // places absolute
    Findings unwritten;  // uninitialised reads, the same
    Sites sites;
    Objects objects;
    std::vector<uint16_t> shared_owner;  // by byte of the segment: which array, from 1
    uint64_t shared_segment_end = 0;

    std::mutex mutex;
    Counts counts;
    Touched touched;
    uint64_t blocks_run = 0;
    uint64_t block_barriers = 0;
    uint64_t warp_barriers = 0;
    // Where the thread of the operating system behind each Recorder is about to store in global memory.
    std::vector<const std::atomic<uint64_t>*> storing;
};

struct Recorder::State {
    State(LaunchRecord::State& of_launch, uint64_t segment)
        : launch(of_launch),
          shared_begin(segment),
          shared_bytes(launch.description.shared_segment_bytes),
          order(launch.objects, launch.description.threads_per_block),
          shared(launch.description.check ? shared_bytes : 0),
          counts(launch.description.profile ? launch.description.text : AddressRange{}),
          recent_reads(launch.description.check ? launch.description.threads_per_block : 0),
          shadow_of_site(launch.description.check ? Sites::kMost : 0) {}

    // A store that clashed with another store: a race unless it leaves the bytes as they are.
    struct Doubt {
        FindingRecord finding{};
        uint64_t key = 0;
        uint64_t address = kNothing;
        uint32_t bytes = 0;
        unsigned char before[16];
    };

    Verdict access(uint32_t thread, uint64_t address, uint32_t bytes, Op op, uint64_t pc);
    Verdict access_shared(const Present& now, uint64_t address, uint32_t bytes, uint64_t pc);
    Verdict access_global(const Present& now, uint64_t address, uint32_t bytes, uint64_t pc);
    void judge(const Clash& clash, const Present& now, bool shared, uint64_t address, uint32_t bytes, uint64_t pc);
    void settle();
    void await_store(uint64_t address, uint32_t bytes) const;
    template <class Report>
    void repeat_or(const FindingRecord& found, const Present& now, uint32_t other_site, const Report& report);

    FindingRecord finding(FindingKind kind, const Present& now, uint64_t address, uint32_t bytes, uint64_t pc) const;
    FindingRecord race(const Present& now, bool shared, uint64_t address, uint32_t bytes, uint64_t pc, const Cell& past) const;
    Verdict out_of_bounds(const Present& now, uint64_t address, uint32_t bytes, uint64_t pc);
    void out_of_bounds(const Request& request, uint32_t lane);

    uint32_t shared_lanes(const Request& request) const;
    void request_shared(const Request& request, uint32_t mask);
    void request_global(const Request& request, uint32_t mask);

    LaunchRecord::State& launch;
    const uint64_t shared_begin;
    const uint64_t shared_bytes;
    BlockOrder order;
    SharedShadow shared;
    Counts counts;
    RecentReads recent_reads;
    std::vector<GlobalShadow*> shadow_of_site;  // the buffer an instruction was last seen in
    TouchedBuffer* last_touched = nullptr;
    Doubt doubt;
    std::atomic<uint64_t> storing{kNothing};
    std::unordered_map<uint64_t, FindingRecord> repeated;  // by kind and sites: what was reported, and how often it came again
    uint64_t blocks_run = 0;
    uint64_t block_barriers = 0;
    uint64_t warp_barriers = 0;
};

// ---- check

Verdict Recorder::State::access(uint32_t thread, uint64_t address, uint32_t bytes, Op op, uint64_t pc) {
    if (doubt.address) settle();
    storing.store(kNothing, std::memory_order_relaxed);
    Present now{order, {}, op};
    now.cell.segment = order.segment();
    now.cell.thread = thread;
    now.cell.clock = order.clock(thread / kWarpLanes).of(thread % kWarpLanes);
    now.cell.site = launch.sites.number(pc, op);
    now.cell.width = kOneLane;
    if (op == Op::load) recent_reads.add(thread, address, now.cell.site);
    if (op == Op::compare) recent_reads.recheck(thread, address, launch.sites);
    if (bytes <= 16 && (bytes & (bytes - 1)) == 0 && address % bytes != 0) {
        launch.report(finding(FindingKind::misaligned, now, address, bytes, pc));
    }
    if (address - shared_begin < shared_bytes) return access_shared(now, address, bytes, pc);
    return access_global(now, address, bytes, pc);
}

Verdict Recorder::State::access_shared(const Present& now, uint64_t address, uint32_t bytes, uint64_t pc) {
    const uint64_t offset = address - shared_begin;
    const std::vector<uint16_t>& owner = launch.shared_owner;
    const uint64_t last = offset + bytes - 1;
    if (last >= owner.size() || owner[offset] == 0 || owner[offset] != owner[last]) {
        launch.report(finding(FindingKind::shared_out_of_bounds, now, offset, bytes, pc));
        return last < owner.size() ? Verdict::proceed : Verdict::stop;
    }
    if (is_atomic(now.op)) order.atomic(now.cell.thread, address, writes(now.op), reads(now.op));
    const Clash clash = shared.access(now, offset, bytes, launch.sites);
    if (clash.any()) judge(clash, now, true, address, bytes, pc);
    return Verdict::proceed;
}

Verdict Recorder::State::access_global(const Present& now, uint64_t address, uint32_t bytes, uint64_t pc) {
    GlobalShadow*& shadow = shadow_of_site[now.cell.site];
    if (!shadow || !shadow->holds(address, bytes)) {
        shadow = GlobalShadows::instance().find(address);
        if (!shadow || !shadow->holds(address, bytes)) {
            shadow = nullptr;
            const bool allowed = in_heap(reinterpret_cast<void*>(address)) || is_constant(launch.description, address, bytes);
            return allowed ? Verdict::proceed : out_of_bounds(now, address, bytes, pc);
        }
    }
    if (is_atomic(now.op) || is_volatile(now.op)) order.atomic(now.cell.thread, address, writes(now.op), reads(now.op));
    if (writes(now.op)) storing.store(address);
    const Clash clash = shadow->access(now, address, bytes, launch.sites);
    if (clash.with_read || clash.with_write) judge(clash, now, false, address, bytes, pc);
    return Verdict::proceed;
}

void Recorder::State::judge(const Clash& clash, const Present& now, bool in_shared, uint64_t address, uint32_t bytes,
                            uint64_t pc) {
    if (in_shared && clash.uninitialized && reads(now.op)) {
        repeat_or(finding(FindingKind::uninitialized_shared, now, address - shared_begin, bytes, pc), now, 0,
                  [&](const FindingRecord& found) { launch.unwritten.report(found); });
    }
    if (clash.with_read) {
        const bool may_be_rechecked = is_atomic(now.op) && launch.sites.op(clash.read.site) == Op::load;
        repeat_or(race(now, in_shared, address, bytes, pc, clash.read), now, clash.read.site,
                  [&](const FindingRecord& found) { launch.report(found, may_be_rechecked); });
    }
    if (clash.with_write) {
        const Op past = launch.sites.op(clash.write.site);
        const bool may_be_rechecked = now.op == Op::load && is_atomic(past);
        const bool may_be_equal = writes(now.op) && !is_atomic(now.op) && !is_atomic(past);
        repeat_or(race(now, in_shared, address, bytes, pc, clash.write), now, clash.write.site,
                  [&](const FindingRecord& found) {
                      if (!may_be_equal) return launch.report(found, may_be_rechecked);
                      if (!in_shared) await_store(address, bytes);
                      doubt.finding = found;
                      doubt.key = key_of(found, now.cell.site, clash.write.site);
                      doubt.address = address;
                      doubt.bytes = bytes;
                      std::memcpy(doubt.before, reinterpret_cast<const void*>(address), bytes);
                  });
    }
}

// What has been reported is only counted.
template <class Report>
void Recorder::State::repeat_or(const FindingRecord& found, const Present& now, uint32_t other_site, const Report& report) {
    const auto [known, added] = repeated.try_emplace(key_of(found, now.cell.site, other_site), found);
    if (!added) {
        known->second.count++;
        return;
    }
    known->second.count = 0;
    report(found);
}

// The store in doubt has been made by now.
void Recorder::State::settle() {
    if (std::memcmp(doubt.before, reinterpret_cast<const void*>(doubt.address), doubt.bytes) != 0) {
        launch.report(doubt.finding);
    } else {
        repeated.erase(doubt.key);
    }
    doubt.address = kNothing;
}

// The other store is known from its hook and may not have been made: its value is what we want to compare with. Its thread's
// next hook comes soon after; a thread without one has made the store long before this gives up.
void Recorder::State::await_store(uint64_t address, uint32_t bytes) const {
    const std::lock_guard<std::mutex> lock(launch.mutex);
    for (const std::atomic<uint64_t>* other : launch.storing) {
        if (other == &storing) continue;
        for (uint32_t patience = 0; patience < 20000; patience++) {
            const uint64_t at = other->load();
            if (at == kNothing || at + 16 <= address || address + bytes <= at) break;
        }
    }
}

FindingRecord Recorder::State::finding(FindingKind kind, const Present& now, uint64_t address, uint32_t bytes,
                                       uint64_t pc) const {
    FindingRecord found = new_finding(kind, order.block(), now.cell.thread);
    found.op = static_cast<uint32_t>(now.op);
    found.bytes = bytes;
    found.pc = pc;
    found.address = address;
    return found;
}

FindingRecord Recorder::State::race(const Present& now, bool in_shared, uint64_t address, uint32_t bytes, uint64_t pc,
                                    const Cell& past) const {
    FindingRecord found = in_shared ? finding(FindingKind::shared_race, now, address - shared_begin, bytes, pc)
                                    : finding(FindingKind::global_race, now, address, bytes, pc);
    found.other_op = static_cast<uint32_t>(launch.sites.op(past.site));
    found.other_pc = launch.sites.pc(past.site);
    const bool itself = past.width != kOneLane && past.thread == now.cell.thread;  // the group's known member
    found.other_block = in_shared ? order.block() : order.segments().block_of(past.segment);
    found.other_thread = itself && found.other_block == order.block() ? kNobody : past.thread;
    if (found.other_thread == kNobody) found.other_block = kNobody;
    if (const Buffer* buffer = in_shared ? nullptr : device_memory().find(address)) {
        found.begin = buffer->begin;
        found.end = buffer->end;
    }
    return found;
}

Verdict Recorder::State::out_of_bounds(const Present& now, uint64_t address, uint32_t bytes, uint64_t pc) {
    const uint64_t around = shared_begin - kNearShared;
    if (address - around < shared_bytes + 2 * kNearShared) {
        launch.report(finding(FindingKind::shared_out_of_bounds, now, address - shared_begin, bytes, pc));
        return Verdict::stop;
    }
    FindingRecord found = finding(FindingKind::out_of_bounds, now, address, bytes, pc);
    const Buffer* nearest = device_memory().nearest(address);
    if (nearest) {
        found.begin = nearest->begin;
        found.end = nearest->end;
    }
    launch.report(found);
    return nearest && in_slack(*nearest, address, bytes) ? Verdict::proceed : Verdict::stop;
}

// ---- profile

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
    counts.add_shared(request, {mask, request.bytes, is_atomic(request.op), offsets}, order.block());
}

void Recorder::State::request_global(const Request& request, uint32_t mask) {
    uint32_t counted = mask;
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
            TouchedBuffer* found = launch.touched.find(address);
            if (!found || !found->holds(address, request.bytes)) {
                if (is_constant(launch.description, address, request.bytes)) counted &= ~(1u << lane);
                else if (!in_heap(reinterpret_cast<void*>(address))) out_of_bounds(request, lane);
                continue;
            }
            last_touched = found;
        }
        run_begin = address;
        run_end = address + request.bytes;
    }
    mark_run();
    if (counted) counts.add_global(request, {counted, request.bytes, is_atomic(request.op), request.addresses}, order.block());
}

void Recorder::State::out_of_bounds(const Request& request, uint32_t lane) {
    Present now{order, {}, request.op};
    now.cell.thread = request.warp * kLanes + lane;
    out_of_bounds(now, request.addresses[lane], request.bytes, request.pc);
}

// ---- what the engine calls

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
}

void Recorder::begin_block(uint64_t block) {
    state_->blocks_run++;
    state_->order.begin_block(block);
}

void Recorder::end_block() {
    if (state_->doubt.address) state_->settle();
    state_->storing.store(kNothing);
}

Verdict Recorder::access(uint32_t thread, uint64_t address, uint32_t bytes, Op op, uint64_t pc) {
    return state_->access(thread, address, bytes, op, pc);
}

Verdict Recorder::access_range(uint32_t thread, uint64_t address, uint64_t bytes, Op op, uint64_t pc) {
    while (bytes) {
        const uint64_t part = std::min<uint64_t>(bytes, 4 - address % 4);
        if (access(thread, address, part == 3 ? 1 : static_cast<uint32_t>(part), op, pc) == Verdict::stop) return Verdict::stop;
        address += part == 3 ? 1 : part;
        bytes -= part == 3 ? 1 : part;
    }
    return Verdict::proceed;
}

void Recorder::request(const Request& request) {
    const uint32_t shared_mask = state_->shared_lanes(request);
    if (shared_mask) state_->request_shared(request, shared_mask);
    if (request.mask & ~shared_mask) state_->request_global(request, request.mask & ~shared_mask);
}

void Recorder::step(uint64_t pc, uint32_t mask) { state_->counts.add_step(pc, mask); }

void Recorder::block_barrier() {
    if (state_->doubt.address) state_->settle();
    state_->block_barriers++;
    state_->order.block_barrier();
}

void Recorder::warp_barrier(uint32_t warp, uint32_t mask) {
    if (state_->doubt.address) state_->settle();
    state_->warp_barriers++;
    state_->order.warp_barrier(warp, mask);
}

void Recorder::fence(uint32_t thread) { state_->order.fence(thread); }

void Recorder::release(uint32_t thread, uint64_t object) { state_->order.release(thread, object); }

void Recorder::acquire(uint32_t thread, uint64_t object) { state_->order.acquire(thread, object); }

LaunchRecord::LaunchRecord(const LaunchDescription& description, Findings& findings)
    : state_(std::make_unique<State>(description, findings)) {
    state_->shared_owner.resize(description.shared_segment_bytes);
    uint16_t number = 0;
    for (const SharedArray& array : description.shared_arrays) {
        number++;
        const uint64_t end = std::min<uint64_t>(array.offset + array.bytes, description.shared_segment_bytes);
        for (uint64_t byte = array.offset; byte < end; byte++) state_->shared_owner[byte] = number;
    }
    std::vector<GlobalShadows::Range> ranges;
    for (const Buffer& buffer : device_memory().buffers()) ranges.push_back({buffer.begin, buffer.end});
    for (const AddressRange& part : device_variables(description)) ranges.push_back({part.begin, part.end});
    if (heap_begin()) ranges.push_back({heap_begin(), heap_begin() + kDeviceHeapBytes});
    if (description.profile) {
        for (const auto& range : ranges) state_->touched.add(range.begin, range.end);
        state_->touched.sort();
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
            return other.kind == static_cast<uint32_t>(FindingKind::shared_race) &&
                   (other.pc == read.pc || other.other_pc == read.pc);
        };
        const auto& found = state.findings.records();
        if (std::none_of(found.begin(), found.end(), races)) state.report(each);
    }
    GlobalShadows::instance().end_launch();
}

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
    totals.findings_dropped = state.findings.dropped();
    for (const StepCount& step : steps()) {
        totals.steps += step.steps;
        totals.active_lanes += step.lanes;
    }
    std::vector<BufferUse> uses;
    std::vector<unsigned char> bitmaps;
    for (const auto& buffer : state.touched.buffers()) {
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
