// shadow_cell.h: who wrote, read and updated atomically a byte or a word: 8 bytes for each, and when two accesses clash.
//
// Both shadows, of shared and of global memory, keep a cell for plain writes, one for reads and one for atomics. A cell holds
// one access, and for how wide a group it stands: accesses that are not ordered among each other merge into the smallest group
// that holds them all (an aligned group of lanes, a block, several blocks). No kind hides another, and nothing depends on
// which access came first, so that a race is found under every schedule.
#pragma once

#include <cstdint>

#include "order.h"
#include "records.h"
#include "sites.h"

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

inline bool is_atomic(Op op) { return op == Op::atomic || op == Op::compare || op >= Op::atomic_store; }
inline bool is_volatile(Op op) { return op == Op::volatile_load || op == Op::volatile_store; }
inline bool is_load(Op op) { return op == Op::load || op == Op::volatile_load; }

// Where the accesses of one block are looked at: all of them in shared memory.
struct SameBlock {
    static constexpr bool kOneCluster = false;
    static constexpr bool kVolatileIsAtomic = false;  // code of the time before __syncwarp
    const BlockOrder& order;
    bool live(const Cell& cell) const { return cell.segment >= order.first(); }
    bool same_block(const Cell&) const { return true; }
    uint64_t block(const Cell&) const { return order.block(); }
};

struct AnyBlock {
    static constexpr bool kOneCluster = false;
    static constexpr bool kVolatileIsAtomic = true;  // a flag
    const BlockOrder& order;
    bool live(const Cell& cell) const { return cell.segment >= order.segments().floor(); }
    bool same_block(const Cell& cell) const { return block(cell) == order.block(); }
    uint64_t block(const Cell& cell) const { return order.segments().block_of(cell.segment); }
};

// Where blocks of a cluster share the memory of one of them, whose first segment is `first`.
struct SameCluster : AnyBlock {
    uint32_t first;
    static constexpr bool kOneCluster = true;
    static constexpr bool kVolatileIsAtomic = false;
    bool live(const Cell& cell) const { return cell.segment >= first; }
};

// Whether the present access is ordered after the access (or all accesses of the group) in a live cell by barriers alone.
template <class Where>
bool ordered_by_barriers(const Where& where, const Cell& past, const Present& now) {
    const BlockOrder& order = now.order;
    if (past.width == kGridWide) return Where::kOneCluster && past.segment < order.cluster_floor();
    if (past.segment != now.cell.segment && !where.same_block(past)) {
        return past.segment < order.cluster_floor() && order.same_cluster(where.block(past));
    }
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
    now.order.acquire_early_reads();
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
    if (Where::kOneCluster) group.segment = now.cell.segment;
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

// The cells of a byte or a word. A cell that stands for a group names its first member; beside it, in the second plane, stands
// the one that made the group as wide as it is, so that a report can name a member that does clash.
enum Plane : uint32_t { kWrites, kReads, kAtomics, kSecondWrites, kSecondReads, kSecondAtomics };
constexpr uint32_t kPlanes = 6;

inline Plane second(Plane plane) { return static_cast<Plane>(plane + kSecondWrites); }

inline Plane plane_of(Op op, bool volatile_is_atomic) {
    if (is_load(op)) return kReads;
    return is_atomic(op) || (volatile_is_atomic && op == Op::volatile_store) ? kAtomics : kWrites;
}

// What the present access found.
struct Clash {
    bool with_read = false;
    bool with_write = false;     // or with an atomic
    bool uninitialized = false;  // nothing of this block has written here
    bool any() const { return with_read | with_write | uninitialized; }
    Cell read{};
    Cell write{};
};

// Cells: load(plane), store(plane, bits), and update(plane, f), which replaces the bits by f(bits) and returns what they were.
// atomics_seen: false spares a look at cells that no thread has written.
// The own access is recorded first and the other cells looked at afterwards: of two threads that come at once, one sees the
// other. False when another thread is splitting the word: look at its bytes instead.
template <class Where, class Cells, class Seen>
bool look(const Where& where, const Cells& cells, const Present& now, const Sites& sites, const Seen& atomics_seen,
          Clash& clash) {
    const bool flags = Where::kVolatileIsAtomic;
    const Plane own = plane_of(now.op, flags);
    bool widened = false;
    const uint64_t before = cells.update(own, [&](uint64_t bits) {
        const Cell past = Cell::unpack(bits);
        const Cell group = joined(where, past, now);
        widened = group.width > past.width && group.width > kOneLane;
        return group.pack();
    });
    bool whole = before != kSplit;
    if (whole && widened) cells.store(second(own), now.cell.pack());
    bool written = false;
    const auto compare = [&](Plane plane, uint64_t bits, bool& clashes, Cell& with) {
        const Cell past = Cell::unpack(bits);
        whole &= bits != kSplit;
        if (!whole || !where.live(past)) return;
        const Op past_op = sites.op(past.site);
        written |= !is_load(past_op);
        const bool both_flags = flags && (is_volatile(now.op) || own == kAtomics) && (is_volatile(past_op) || is_atomic(past_op));
        if (clashes || both_flags || ordered(where, past, now)) return;
        clashes = true;
        Cell first_member = past;
        first_member.width = kOneLane;
        with = past;
        if (past.width == kOneLane || !ordered_by_barriers(where, first_member, now)) return;
        const uint64_t other_member = cells.load(second(plane));
        if (other_member != kSplit && where.live(Cell::unpack(other_member))) with = Cell::unpack(other_member);
    };
    compare(kWrites, own == kWrites ? before : cells.load(kWrites), clash.with_write, clash.write);
    if (own != kAtomics && atomics_seen()) compare(kAtomics, cells.load(kAtomics), clash.with_write, clash.write);
    if (own != kReads) compare(kReads, cells.load(kReads), clash.with_read, clash.read);
    if (own == kAtomics) written |= where.live(Cell::unpack(before));
    clash.uninitialized |= !written;
    return whole;
}

}  // namespace lk
