// shadow_cell.h: who last wrote, and who has read, a byte or a word: 8 bytes each, and when two accesses clash.
//
// Both shadows, of shared and of global memory, keep a cell for the last write and a cell for the reads since. One cell holds
// one access, and for how wide a group it stands: reads that are not ordered among each other merge into the smallest group
// that holds them all (an aligned group of lanes, a block, several blocks), and so do writes that are no race (atomics, equal
// values). Nothing depends on which access came first, so that a race is found under every schedule.
#pragma once

#include <cstdint>

#include "order.h"
#include "records.h"

namespace lk {

// Width of the group a cell stands for: 0 to 5 are 2^width lanes of one warp, aligned.
constexpr uint32_t kOneLane = 0;
constexpr uint32_t kBlockWide = 6;
constexpr uint32_t kGridWide = 7;

// In place of a word's cell: its bytes were accessed apart, each has a cell of its own.
constexpr uint64_t kSplit = ~uint64_t{0};

struct Cell {
    uint32_t segment;  // 0: empty
    uint32_t thread;   // linear in its block
    uint32_t clock;    // of its lane
    uint32_t site;     // of the access, see sites.h
    uint32_t width;

    static Cell unpack(uint64_t bits) {
        Cell cell;
        cell.segment = static_cast<uint32_t>(bits >> 32);
        cell.thread = bits >> 22 & 1023;
        cell.clock = bits >> 15 & 127;
        cell.site = bits >> 3 & 4095;
        cell.width = bits & 7;
        return cell;
    }
    uint64_t pack() const {
        return uint64_t{segment} << 32 | uint64_t{thread} << 22 | uint64_t{clock} << 15 | uint64_t{site} << 3 | width;
    }
    uint32_t warp() const { return thread / kWarpLanes; }
    uint32_t lane() const { return thread % kWarpLanes; }
};

// The access under way.
struct Present {
    BlockOrder& order;
    Cell cell;  // as it will be recorded: one lane
    Op op;
};

inline bool is_atomic(Op op) { return op == Op::atomic || op == Op::compare; }
inline bool is_volatile(Op op) { return op == Op::volatile_load || op == Op::volatile_store; }
inline bool is_load(Op op) { return op == Op::load || op == Op::volatile_load; }

// Where the accesses of one block are looked at: all of them in shared memory.
struct SameBlock {
    const BlockOrder& order;
    bool live(const Cell& cell) const { return cell.segment >= order.first(); }
    bool same_block(const Cell&) const { return true; }
    uint64_t block(const Cell&) const { return order.block(); }
};

struct AnyBlock {
    const BlockOrder& order;
    bool live(const Cell& cell) const { return cell.segment >= order.segments().floor(); }
    bool same_block(const Cell& cell) const { return block(cell) == order.block(); }
    uint64_t block(const Cell& cell) const { return order.segments().block_of(cell.segment); }
};

// Whether the present access is ordered after the access (or all accesses of the group) in a live cell by barriers alone.
template <class Where>
bool ordered_by_barriers(const Where& where, const Cell& past, const Present& now) {
    if (past.width == kGridWide) return false;
    const BlockOrder& order = now.order;
    if (past.segment != now.cell.segment && !where.same_block(past)) return false;
    if (past.segment < order.floor()) return true;
    if (past.width == kBlockWide) return false;
    if (past.width == kOneLane && past.thread == now.cell.thread) return true;
    const uint32_t warp = now.cell.warp();
    if (past.warp() != warp) return false;
    if (past.segment < order.warp_floor(warp)) return true;
    const WarpClock& clock = order.clock(warp);
    if (past.width == kOneLane) return clock.orders(past.lane(), past.clock, now.cell.lane());
    const uint32_t lanes = 1u << past.width;
    return clock.orders_group(past.lane() & ~(lanes - 1), lanes, past.lane(), past.clock, now.cell.lane());
}

// The same by fences and flags. Of a group only one member is known: a warp that has acquired anything is trusted.
template <class Where>
bool ordered_by_objects(const Where& where, const Cell& past, const Present& now) {
    Objects& objects = now.order.objects();
    if (!objects.in_use()) return false;
    const Participant reader{now.order.block(), now.cell.warp()};
    if (past.width != kOneLane) return objects.knows_anything(reader);
    return objects.orders({where.block(past), past.warp()}, past.segment, reader);
}

template <class Where>
bool ordered(const Where& where, const Cell& past, const Present& now) {
    return ordered_by_barriers(where, past, now) || ordered_by_objects(where, past, now);
}

// What the cell becomes when the present access joins or replaces it.
template <class Where>
Cell joined(const Where& where, const Cell& past, const Present& now) {
    if (!where.live(past) || ordered(where, past, now)) return now.cell;
    Cell group = past;
    if (past.width == kGridWide) return group;
    if (past.segment != now.cell.segment && !where.same_block(past)) {
        group.width = kGridWide;
        return group;
    }
    group.segment = now.cell.segment;
    if (past.width == kBlockWide || past.warp() != now.cell.warp()) {
        group.width = kBlockWide;
        return group;
    }
    group.clock = past.clock > now.cell.clock ? past.clock : now.cell.clock;
    while ((past.lane() ^ now.cell.lane()) >> group.width) group.width++;
    return group;
}

// What the present access found.
struct Clash {
    bool with_read = false;
    bool with_write = false;
    bool uninitialized = false;  // nothing of this block has written here
    Cell read{};
    Cell write{};
};

// Slot: load(), and update(f), which replaces the bits by f(bits) and returns what they were.
// The own access is recorded first and the other cell looked at afterwards: of two threads that come at once, one sees the other.
template <class Where, class Slot, class Exempt>
void look(const Where& where, Slot write, Slot read, const Present& now, const Exempt& exempt, Clash& clash) {
    const auto join = [&](uint64_t bits) { return joined(where, Cell::unpack(bits), now).pack(); };
    const bool loads = is_load(now.op);
    const uint64_t own = loads ? read.update(join) : write.update(join);
    const uint64_t write_bits = loads ? write.load() : own;
    if (own == kSplit || write_bits == kSplit) return;  // split a moment ago, by another: the caller comes again
    const Cell last_write = Cell::unpack(write_bits);
    if (!where.live(last_write)) {
        clash.uninitialized = true;
    } else if (!clash.with_write && !exempt(last_write) && !ordered(where, last_write, now)) {
        clash.with_write = true;
        clash.write = last_write;
    }
    if (loads) return;
    const uint64_t read_bits = read.load();
    if (read_bits == kSplit) return;
    const Cell last_read = Cell::unpack(read_bits);
    if (where.live(last_read) && !clash.with_read && !exempt(last_read) && !ordered(where, last_read, now)) {
        clash.with_read = true;
        clash.read = last_read;
    }
}

}  // namespace lk
