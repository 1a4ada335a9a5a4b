// mbarrier.cpp: barriers of Hopper's kind: a phase ends when all arrivals have come, and all bytes that were expected.
#include <cstdio>

#include "cluster.h"
#include "hooks.h"

namespace lk {

namespace {

constexpr u32 kKept = 4;  // phases whose order is remembered: others are older than any that a thread asks for

FindingRecord barrier_finding(Block& block, FindingKind kind, const Actor& by, u64 offset) {
    FindingRecord finding = make_finding(block, kind, by.thread, by.pc);
    finding.address = offset;
    return finding;
}

// Another thread may use a barrier once something orders it after the thread that made the barrier.
void check_maker(Block& block, u64 offset, Mbarrier& barrier) {
    const AsyncChecks* checks = block.cluster->checks.get();
    const Actor by = actor(block);
    if (!checks || barrier.unordered || checks->comes_after(by, barrier.maker, barrier.made_clock)) return;
    barrier.unordered = true;
    FindingRecord finding = barrier_finding(block, FindingKind::unset_barrier, by, offset);
    finding.other_block = block.cluster->blocks[barrier.maker.rank]->number;
    finding.other_thread = barrier.maker.thread;
    finding.other_pc = file_pc(block, barrier.maker.pc);
    block.launch->findings.report(finding);
}

void end_phase_if_complete(Cluster& cluster, Mbarrier& barrier) {
    if (barrier.pending != 0 || barrier.bytes != 0) return;
    if (cluster.checks) barrier.ended[barrier.phase % kKept] = barrier.arriving;
    barrier.pending = barrier.expected;
    barrier.told_before = barrier.told;
    barrier.told = 0;
    barrier.landed += barrier.flying;
    barrier.flying = 0;
    barrier.phase++;
}

// All have arrived, and copies brought more than any of them said.
void report_surplus(Block& home, u64 offset, const Mbarrier& barrier, const Actor& by, i64 told, i64 surplus) {
    FindingRecord finding = barrier_finding(*home.cluster->blocks[by.rank], FindingKind::byte_count, by, offset);
    finding.values[0] = u32(told);
    finding.values[1] = u32(surplus);
    finding.begin = barrier.phase;
    home.launch->findings.report(finding);
    home.launch->stopped = true;
}

void expect(Mbarrier& barrier, i64 bytes) {
    barrier.bytes += bytes;
    barrier.told += bytes;
}

// The phase has ended for this thread.
void learn_phase(Block& block, Block& home, u64 offset, Mbarrier& barrier, unsigned phase) {
    home.flying -= barrier.landed;
    barrier.landed = 0;
    if (!block.cluster->checks) return;
    block.recorder->barrier_awaited(block.shared_begin + offset, phase);
    const Clocks& known = barrier.phase - phase <= kKept ? barrier.ended[phase % kKept] : barrier.ended[barrier.phase % kKept];
    block.cluster->checks->learn(actor(block), known);
    block.cluster->checks->wait(actor(block), barrier_key(home, offset), phase);
}

// Until the phase under way is another one than `phase`; false when the thread gave up.
bool wait_while(Block& block, Mbarrier& barrier, unsigned phase, bool may_give_up) {
    Thread& thread = *block.thread;
    while (barrier.phase == phase) {
        thread.watched = &barrier.phase;
        thread.watched_value = phase;
        thread.awaited = &barrier;
        thread.may_give_up = may_give_up;
        thread.gave_up = false;
        wait_in(block, &Warp::waiting);
        thread.awaited = nullptr;
        if (thread.gave_up) return false;
    }
    return true;
}

// Of the threads that wait for phases, one whose phase lacks what only a mistake explains: bytes, else some arrivals; else any.
u32 likeliest_waiter(const Block& block) {
    u32 best = block.thread_count;
    int best_rank = 3;
    for (u32 number = 0; number < block.thread_count; number++) {
        const Thread& thread = block.threads[number];
        if (!(block.warps[number / kWarpSize].waiting >> number % kWarpSize & 1) || !thread.awaited) continue;
        const Mbarrier& barrier = *thread.awaited;
        const int rank = barrier.bytes != 0 && barrier.pending == 0 ? 0 : barrier.pending < i64(barrier.expected) ? 1 : 2;
        if (rank >= best_rank) continue;
        best = number;
        best_rank = rank;
    }
    return best;
}

void note_wait(Block& block, Mbarrier& barrier, bool at_once) {
    if (!block.cluster->checks) return;
    barrier.waited.resize(block.warp_count * kWarpSize);
    unsigned& last = barrier.waited[block.thread_number];
    if (at_once && last == barrier.phase && barrier.phase && !barrier.repeated.pc) barrier.repeated = actor(block);
    last = barrier.phase;
}

}  // namespace

Mbarrier& barrier_at(Block& block, const void* at, Block** home, u64* offset) {
    *home = home_of(block, reinterpret_cast<u64>(at), offset);
    if (*home) {
        const auto found = (*home)->mbarriers.find(*offset);
        if (found != (*home)->mbarriers.end()) {
            check_maker(block, *offset, found->second);
            return found->second;
        }
    }
    block.launch->findings.report(barrier_finding(block, FindingKind::unset_barrier, actor(block), *home ? *offset : 0));
    stop_launch(block);
}

void complete_bytes(Block& home, u64 offset, unsigned phase, i64 bytes, const Actor& by) {
    const auto found = home.mbarriers.find(offset);
    if (found == home.mbarriers.end()) return;
    Mbarrier& barrier = found->second;
    if (barrier.phase != phase) return report_surplus(home, offset, barrier, by, barrier.told_before, bytes);
    barrier.bytes -= bytes;
    if (barrier.pending == 0 && barrier.bytes < 0) return report_surplus(home, offset, barrier, by, barrier.told, -barrier.bytes);
    home.cluster->events++;
    end_phase_if_complete(*home.cluster, barrier);
}

bool give_up_waits(Block& block) {
    bool any = false;
    for (Warp& warp : block.warps) {
        for (u32 lanes = warp.waiting; lanes; lanes &= lanes - 1) {
            const u32 lane = lowest_lane(lanes);
            Thread& thread = block.threads[u64(&warp - block.warps.data()) * kWarpSize + lane];
            if (!thread.awaited || !thread.may_give_up || thread.gave_up_at == block.cluster->events + 1) continue;
            thread.gave_up = true;
            thread.gave_up_at = block.cluster->events + 1;
            warp.waiting &= ~(1u << lane);
            warp.ready |= 1u << lane;
            any = true;
        }
    }
    return any;
}

bool report_stuck_barrier(Block& block) {
    const u32 number = likeliest_waiter(block);
    if (number == block.thread_count) return false;
    const Thread& thread = block.threads[number];
    const Mbarrier& barrier = *thread.awaited;
    FindingRecord finding = make_finding(block, FindingKind::stuck_barrier, number, thread.pc);
    finding.values[0] = u32(barrier.pending);
    finding.values[1] = u32(barrier.bytes);
    finding.begin = barrier.phase;
    finding.end = barrier.expected;
    finding.bytes = u32(barrier.told);
    for (const auto& [offset, each] : block.mbarriers) {
        if (&each == &barrier) finding.address = offset;
        if (!each.repeated.pc) continue;
        finding.other_thread = each.repeated.thread;
        finding.other_block = block.number;
        finding.other_pc = file_pc(block, each.repeated.pc);
    }
    block.launch->findings.report(finding);
    return true;
}

}  // namespace lk

using namespace lk;

void lk_mbarrier_init(void* at, unsigned arrivals) {
    Block& block = enter_runtime();
    u64 offset = 0;
    Block* home = home_of(block, reinterpret_cast<u64>(at), &offset);
    if (!home || offset % 8 != 0) {
        block.launch->findings.report(barrier_finding(block, FindingKind::unset_barrier, actor(block), home ? offset : 0));
        stop_launch(block);
    }
    Mbarrier& barrier = home->mbarriers[offset];
    barrier = Mbarrier{};
    barrier.expected = arrivals;
    barrier.pending = arrivals;
    if (AsyncChecks* checks = block.cluster->checks.get()) {
        barrier.maker = actor(block);
        barrier.made = checks->now();
        barrier.made_clock = checks->clock(barrier.maker);
    }
    const u64 word = u64{arrivals} << 32 | arrivals;  // something that is not what was there
    memcpy(at, &word, sizeof word);
}

void lk_mbarrier_invalidate(void* at) {
    Block& block = enter_runtime();
    Block* home;
    u64 offset = 0;
    barrier_at(block, at, &home, &offset);
    home->mbarriers.erase(offset);
}

unsigned lk_mbarrier_arrive(void* at, unsigned arrivals, unsigned long long bytes, int drops) {
    Block& block = enter_runtime();
    Block* home;
    u64 offset = 0;
    Mbarrier& barrier = barrier_at(block, at, &home, &offset);
    const unsigned phase = barrier.phase;
    if (block.cluster->checks) block.cluster->checks->publish(actor(block), barrier.arriving);
    expect(barrier, i64(bytes));
    barrier.pending -= arrivals;
    if (drops) barrier.expected -= arrivals;
    block.cluster->events++;
    if (barrier.pending < 0) {
        FindingRecord finding = barrier_finding(block, FindingKind::surplus_arrival, actor(block), offset);
        finding.values[0] = barrier.expected;
        finding.begin = phase;
        block.launch->findings.report(finding);
        stop_launch(block);
    }
    if (barrier.pending == 0 && barrier.bytes < 0) {
        report_surplus(*home, offset, barrier, actor(block), barrier.told, -barrier.bytes);
        stop_launch(block);
    }
    end_phase_if_complete(*block.cluster, barrier);
    return phase;
}

void lk_mbarrier_expect(void* at, unsigned long long bytes) {
    Block& block = enter_runtime();
    Block* home;
    u64 offset = 0;
    expect(barrier_at(block, at, &home, &offset), i64(bytes));
}

void lk_mbarrier_complete(void* at, unsigned long long bytes) {
    Block& block = enter_runtime();
    Block* home;
    u64 offset = 0;
    const unsigned phase = barrier_at(block, at, &home, &offset).phase;
    complete_bytes(*home, offset, phase, i64(bytes), actor(block));
}

int lk_mbarrier_wait(const void* at, unsigned phase, int may_give_up) {
    Block& block = enter_runtime();
    Block* home;
    u64 offset = 0;
    Mbarrier& barrier = barrier_at(block, at, &home, &offset);
    if (!wait_while(block, barrier, phase, may_give_up != 0)) return 0;
    learn_phase(block, *home, offset, barrier, phase);
    return 1;
}

int lk_mbarrier_wait_parity(const void* at, unsigned parity, int may_give_up) {
    Block& block = enter_runtime();
    Block* home;
    u64 offset = 0;
    Mbarrier& barrier = barrier_at(block, at, &home, &offset);
    const bool at_once = (barrier.phase & 1) != (parity & 1);
    if (!at_once && !wait_while(block, barrier, barrier.phase, may_give_up != 0)) return 0;
    note_wait(block, barrier, at_once);
    if (barrier.phase) learn_phase(block, *home, offset, barrier, barrier.phase - 1);
    return 1;
}

unsigned lk_mbarrier_phase(const void* at) {
    Block& block = enter_runtime();
    Block* home;
    u64 offset = 0;
    return barrier_at(block, at, &home, &offset).phase;
}

void lk_named_barrier(unsigned name, unsigned threads, int waits) {
    Block& block = enter_runtime();
    NamedBarrier& barrier = block.named[name];
    AsyncChecks* checks = block.cluster->checks.get();
    if (checks) checks->publish(actor(block), barrier.arriving);
    lk_release(&barrier);
    const unsigned phase = barrier.phase;
    if (++barrier.arrived == threads) {
        barrier.arrived = 0;
        barrier.phase++;
        block.cluster->events++;
        barrier.ended = barrier.arriving;
    }
    if (!waits) return;
    Thread& thread = *block.thread;
    while (barrier.phase == phase) {
        thread.watched = &barrier.phase;
        thread.watched_value = phase;
        thread.at_named = true;
        wait_in(block, &Warp::waiting);
        thread.at_named = false;
    }
    lk_acquire(&barrier);
    if (checks) checks->learn(actor(block), barrier.ended);
}
