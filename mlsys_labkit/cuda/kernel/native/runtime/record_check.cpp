// record_check.cpp: looks at each access in turn: where it goes, whether it may, whom it clashes with.
#include <cstring>

#include "device_memory.h"
#include "engine.h"
#include "fiber.h"
#include "recorder_state.h"
#include "unset_memory.h"

namespace lk {

namespace {

constexpr uint64_t kPageBytes = 4096;
constexpr uint64_t kNearShared = 64 << 10;  // so far from shared memory, an address is a wrong index into it

// True for bytes beyond a buffer's ends that are mapped and belong to no buffer: the rest of its pages.
bool in_slack(const Buffer& buffer, uint64_t address, uint64_t bytes) {
    const uint64_t first = buffer.begin & ~(kPageBytes - 1);
    const uint64_t end = (buffer.end + kPageBytes - 1) & ~(kPageBytes - 1);
    return address >= first && address + bytes <= end;
}

uint64_t key_of(const FindingRecord& found, uint32_t site, uint32_t other_site) {
    return uint64_t{found.kind} << 32 | uint64_t{site} << 16 | other_site;
}

}  // namespace

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
    uint64_t offset;
    State* const home = home_of(address, &offset);
    const bool is_shared = home != nullptr;
    if (bytes <= 16 && (bytes & (bytes - 1)) == 0 && address % bytes != 0) {
        FindingRecord found = finding(FindingKind::misaligned, now, is_shared ? offset : address, bytes, pc);
        found.values[0] = is_shared;
        launch.report(found);
        return Verdict::stop;
    }
    if (is_shared) return access_shared(now, *home, offset, bytes, pc);
    return access_global(now, address, bytes, pc);
}

Recorder::State* Recorder::State::home_of(uint64_t address, uint64_t* offset) {
    *offset = address - shared_begin;
    if (*offset < shared_bytes) return this;
    for (const Peer& peer : peers) {
        *offset = address - peer.image.begin;
        if (*offset < shared_bytes && peer.recorder->state_.get() != this) return peer.recorder->state_.get();
    }
    return nullptr;
}

// home: of the block whose shared memory it is, by offset.
Verdict Recorder::State::access_shared(const Present& now, State& home, uint64_t offset, uint32_t bytes, uint64_t pc) {
    const uint64_t address = shared_begin + offset;  // that it would have in this block
    const std::vector<uint16_t>& owner = launch.shared_owner;
    const uint64_t last = offset + bytes - 1;
    if (last >= owner.size() || owner[offset] == 0 || owner[offset] != owner[last]) {
        launch.report(finding(FindingKind::shared_out_of_bounds, now, offset, bytes, pc));
        return last < owner.size() ? Verdict::proceed : Verdict::stop;
    }
    if (is_atomic(now.op)) order.atomic(now.cell.thread, address + home.rank * kRankStride, writes(now.op), reads(now.op));
    if (&home != this) look_for_peer(home, now, offset, bytes, pc);
    const AsyncCopy* copy = home.copies.find(offset, bytes);
    if (copy) copy_under_way(*copy, now, address, bytes, pc);
    bool filled = false;
    if (launch.description.bulk_copies && checks) {
        const Actor by{rank, now.cell.thread, pc};
        const Conflict conflict = checks->access(by, home.rank, offset, bytes, writes(now.op), &filled);
        if (conflict.kind != Conflict::none) return beside_copy(conflict, now, offset, bytes, pc), Verdict::proceed;
    }
    const Neighbourhood around{peers.empty() ? 0 : home.order.first()};
    Clash clash = home.shared.access(now, offset, bytes, launch.sites, around);
    clash.uninitialized &= !filled;
    if (clash.any() && !copy) judge(clash, now, true, address, bytes, pc);
    return Verdict::proceed;
}

Verdict Recorder::State::access_global(const Present& now, uint64_t address, uint32_t bytes, uint64_t pc) {
    GlobalShadow*& shadow = shadow_of_site[now.cell.site];
    if (!shadow || !shadow->holds(address, bytes)) {
        shadow = GlobalShadows::instance().find(address);
        if (!shadow || !shadow->holds(address, bytes)) {
            shadow = nullptr;
            const bool from_malloc = in_heap(reinterpret_cast<void*>(address));  // of this launch's first call
            if (from_malloc) note_unset(now, address, bytes, pc);
            const bool allowed = from_malloc ||
                                 (!writes(now.op) && is_constant(launch.description, address, bytes));
            return allowed ? Verdict::proceed : out_of_bounds(now, address, bytes, pc);
        }
    }
    if (is_atomic(now.op) || is_volatile(now.op)) order.atomic(now.cell.thread, address, writes(now.op), reads(now.op));
    if (address >= shadow->begin + (-shadow->begin & 3)) note_unset(now, address, bytes, pc);
    if (writes(now.op)) storing.store(address);
    if (launch.description.footprint) note_touched(now.op, address, bytes);
    const Clash clash = shadow->access(now, address, bytes, launch.sites);
    if (clash.with_read || clash.with_write) judge(clash, now, false, address, bytes, pc);
    return Verdict::proceed;
}

// A block of the cluster surely runs only between the first barrier of the cluster and the last.
void Recorder::State::look_for_peer(State& home, const Present& now, uint64_t offset, uint32_t bytes, uint64_t pc) {
    const bool ended = peers[home.rank].block->ended;
    if (order.clusters_met() && !ended) return;
    FindingRecord found = finding(FindingKind::cluster_peer, now, offset, bytes, pc);
    found.other_block = peers[home.rank].number;
    found.end = ended;
    repeat_or(found, now, 0, [&](const FindingRecord& each) { launch.report(each); });
}

void Recorder::State::beside_copy(const Conflict& conflict, const Present& now, uint64_t offset, uint32_t bytes, uint64_t pc) {
    const FindingKind kind = conflict.kind == Conflict::in_use       ? FindingKind::source_in_use
                             : conflict.kind == Conflict::multiplied ? FindingKind::operand_in_use
                                                                     : FindingKind::unfinished_copy;
    FindingRecord found = finding(kind, now, offset, bytes, pc);
    found.other_op = static_cast<uint32_t>(Op::store);
    found.other_pc = conflict.other.pc;
    found.other_block = peers.empty() ? order.block() : peers[conflict.other.rank].number;
    found.other_thread = conflict.other.thread;
    found.values[0] = conflict.committed;
    found.values[1] = 1;
    repeat_or(found, now, launch.sites.number(conflict.other.pc, Op::store), [&](const FindingRecord& each) { launch.report(each); });
}

void Recorder::State::note_touched(Op op, uint64_t address, uint32_t bytes) {
    if (!last_touched || !last_touched->holds(address, bytes)) last_touched = find_range(launch.touched, address);
    if (!last_touched || !last_touched->holds(address, bytes)) return;
    if (reads(op)) last_touched->read.set(address - last_touched->begin, bytes);
    if (writes(op)) last_touched->written.set(address - last_touched->begin, bytes);
}

void Recorder::State::note_unset(const Present& now, uint64_t address, uint32_t bytes, uint64_t pc) {
    if (reads(now.op) && now.op != Op::exchange && is_unset(address, bytes)) {
        repeat_or(finding(FindingKind::uninitialized_global, now, address, bytes, pc), now, 0,
                  [&](const FindingRecord& found) { launch.unwritten.report(found); });
    }
    if (writes(now.op)) set_in_part(address, bytes);
}

namespace {
// What one part of a copy is, as an access of the thread that started it.
Present part_of_copy(BlockOrder& order, uint32_t thread, uint32_t site, Op op) {
    Present now{order, {}, op};
    now.cell.segment = order.segment();
    now.cell.thread = thread;
    now.cell.clock = order.clock(thread / kWarpLanes).of(thread % kWarpLanes);
    now.cell.site = site;
    now.cell.width = kOneLane;
    return now;
}
}  // namespace

// The copy reads what the block has written before: a write that nothing orders before its start is a race.
void Recorder::read_by_copy(uint32_t thread, uint64_t address, uint32_t bytes, uint64_t pc) {
    State& own = *state_;
    if (own.doubt.address) own.settle();
    const Present now = part_of_copy(own.order, thread, own.launch.sites.number(pc, Op::load), Op::load);
    const Neighbourhood around{own.peers.empty() ? 0 : own.order.first()};
    Clash clash = own.shared.access(now, address - own.shared_begin, bytes, own.launch.sites, around);
    clash.uninitialized = false;
    if (clash.any()) own.judge(clash, now, true, address, bytes, pc);
    own.shared.forget_reads(address - own.shared_begin, bytes);
}

void Recorder::filled_by_copy(Recorder& home, const Actor& by, uint64_t offset, uint32_t bytes, bool looks) {
    State& own = *state_;
    if (own.doubt.address) own.settle();
    const uint64_t pc = by.pc;
    const Present now = part_of_copy(own.order, by.thread, own.launch.sites.number(pc, Op::store), Op::store);
    const Neighbourhood around{own.peers.empty() ? 0 : home.state_->order.first()};
    const uint64_t last = offset + bytes - 1;
    const std::vector<uint16_t>& owner = own.launch.shared_owner;
    if (last >= owner.size() || owner[offset] == 0 || owner[offset] != owner[last]) {
        own.launch.report(own.finding(FindingKind::shared_out_of_bounds, now, offset, bytes, pc));
    }
    Clash clash = home.state_->shared.access(now, offset, bytes, own.launch.sites, around);
    if (looks && clash.with_read) {
        own.launch.report(own.race(now, true, own.shared_begin + offset, bytes, pc, clash.read));
    } else if (looks && clash.with_write) {
        own.launch.report(own.race(now, true, own.shared_begin + offset, bytes, pc, clash.write));
    }
    home.state_->shared.forget(offset, bytes);
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

void Recorder::State::copy_under_way(const AsyncCopy& copy, const Present& now, uint64_t address, uint32_t bytes, uint64_t pc) {
    FindingRecord found = finding(FindingKind::unfinished_copy, now, address - shared_begin, bytes, pc);
    found.other_op = static_cast<uint32_t>(Op::store);
    found.other_pc = copy.pc;
    found.other_block = order.block();
    found.other_thread = copy.thread;
    found.values[0] = copies.is_committed(copy);
    repeat_or(found, now, launch.sites.number(copy.pc, Op::store), [&](const FindingRecord& each) { launch.report(each); });
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
    found.other_block = in_shared && peers.empty() ? order.block() : order.segments().block_of(past.segment);
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
    if (is_local(address)) {
        found.values[0] = 1;  // a local variable of another thread's
        launch.report(found);
        return Verdict::stop;
    }
    const Buffer* nearest = device_memory().nearest(address);
    if (nearest) {
        found.begin = nearest->begin;
        found.end = nearest->end;
    }
    launch.report(found);
    return nearest && in_slack(*nearest, address, bytes) ? Verdict::proceed : Verdict::stop;
}

}  // namespace lk
