// block.cpp: the threads of one block, warp after warp, from barrier to barrier.
#include <algorithm>

#include "cluster.h"
#include "guard.h"
#include "scheduler.h"

namespace lk {

namespace {

u32 live(const Warp& warp) { return warp.lanes & ~warp.done; }

// Runs visit(thread_number) for the lanes of a mask of each warp.
template <class Mask, class Visit>
void each_thread(Block& block, Mask mask, Visit visit) {
    for (u32 warp = 0; warp < block.warp_count; warp++) {
        for (u32 lanes = mask(block.warps[warp]); lanes; lanes &= lanes - 1) visit(warp * kWarpSize + lowest_lane(lanes));
    }
}

void report_two_threads(Block& block, FindingKind kind, u32 thread, u32 other) {
    FindingRecord finding = make_finding(block, kind, thread, block.threads[thread].pc);
    finding.other_thread = other;
    finding.other_pc = file_pc(block, block.threads[other].pc);
    block.launch->findings.report(finding);
}

struct ThreadCounts {
    u32 ready = 0;
    u32 at_block_barrier = 0;
    u32 at_grid_barrier = 0;
    u32 waiting = 0;
    u32 done = 0;
};

// Most masks are empty, and the plainest x86-64 counts bits by a call.
u32 lanes_in(u32 mask) { return mask ? u32(__builtin_popcount(mask)) : 0; }

ThreadCounts count(const Block& block) {
    ThreadCounts counts;
    for (const Warp& warp : block.warps) {
        counts.ready += lanes_in(warp.ready);
        counts.at_block_barrier += lanes_in(warp.at_block_barrier);
        counts.at_grid_barrier += lanes_in(warp.at_grid_barrier);
        counts.waiting += lanes_in(warp.waiting);
        counts.done += lanes_in(warp.done);
    }
    return counts;
}

// All live threads are at a block barrier: is it the same one? And has nobody left? On a GPU a barrier that some threads can
// no longer reach often works, so a plain run lets it pass.
bool barrier_is_sound(Block& block, const ThreadCounts& counts) {
    constexpr u32 kNone = ~0u;
    u32 first = kNone;
    u32 other = kNone;
    if (!block.arrivals.differ && (!counts.done || block.mode != Mode::check)) return true;
    each_thread(block, [](const Warp& warp) { return warp.at_block_barrier; }, [&](u32 thread) {
        if (first == kNone) first = thread;
        if (block.threads[thread].barrier_site != block.threads[first].barrier_site) other = std::min(other, thread);
    });
    if (other != kNone) {
        report_two_threads(block, FindingKind::divergent_barrier, first, other);
        return false;
    }
    if (counts.done && block.mode == Mode::check) {
        u32 gone = kNone;
        each_thread(block, [](const Warp& warp) { return warp.done; }, [&](u32 thread) { gone = std::min(gone, thread); });
        FindingRecord finding = make_finding(block, FindingKind::exited_before_barrier, first, block.threads[first].pc);
        finding.other_thread = gone;
        finding.values[0] = counts.at_block_barrier;
        finding.values[1] = block.thread_count;
        block.launch->findings.report(finding);
    }
    return true;
}

void open_barrier(Block& block) {
    block.barrier_count = block.arrivals.yes;
    block.barrier_all = block.arrivals.yes == block.arrivals.count;
    block.arrivals = {};
    if (block.recorder) block.recorder->block_barrier();
    for (Warp& warp : block.warps) {
        warp.ready |= warp.at_block_barrier;
        warp.at_block_barrier = 0;
    }
}

// Threads whose word has changed may go on.
void wake_waiting(Block& block) {
    each_thread(block, [](const Warp& warp) { return warp.waiting; }, [&](u32 number) {
        const Thread& thread = block.threads[number];
        if (__atomic_load_n(thread.watched, __ATOMIC_ACQUIRE) == thread.watched_value) return;
        Warp& warp = block.warps[number / kWarpSize];
        u32 bit = 1u << number % kWarpSize;
        warp.waiting &= ~bit;
        warp.ready |= bit;
    });
}

void run_warps(Block& block) {
    u32 rotation = block.shuffled() ? block.random.next() % block.warp_count : 0;
    u32 flip = block.shuffled() ? block.random.next() & 1 : 0;
    for (u32 i = 0; i < block.warp_count && !stopped(block); i++) {
        u32 place = flip ? block.warp_count - 1 - i : i;
        u32 warp = (place + rotation) % block.warp_count;
        if (block.warps[warp].ready) run_warp(block, warp);
    }
}

// What it watches is the runtime's own, and no other block can change it but one of its cluster.
bool is_internal(const Thread& thread) { return thread.awaited || thread.in_cluster || thread.at_named; }

bool watches_shared_memory(Block& block) {
    bool all = true;
    each_thread(block, [](const Warp& warp) { return warp.waiting; }, [&](u32 thread) {
        const u64 word = reinterpret_cast<u64>(block.threads[thread].watched);
        const bool is_shared = word - block.shared_begin < block.shared_end - block.shared_begin;
        all = all && (is_shared || is_internal(block.threads[thread]));
    });
    return all;
}

void end_block(Block& block) {
    if (block.recorder) block.recorder->end_block();
    end_copies(block);
    block.done = block.thread_count;
    block.ended = true;
    block.cluster->events++;
    complete_cluster_barrier(*block.cluster);
}

}  // namespace

void report_deadlock(Block& block) {
    for (Block* peer : block.cluster->blocks) {
        if (!peer->ended && (report_stuck_operation(*peer) || report_stuck_barrier(*peer))) return;
    }
    if (report_stuck_cluster(*block.cluster)) return;
    constexpr u32 kNone = ~0u;
    u32 first = kNone;
    u32 other = kNone;
    each_thread(block, [](const Warp& warp) { return warp.at_block_barrier; }, [&](u32 thread) { first = std::min(first, thread); });
    each_thread(block, [](const Warp& warp) { return live(warp) & ~warp.at_block_barrier; }, [&](u32 thread) { other = std::min(other, thread); });
    if (first == kNone) std::swap(first, other);
    report_two_threads(block, FindingKind::divergent_barrier, first, other == kNone ? first : other);
}

// A division of 64 bits takes several times as long as one of 32.
static u64 quotient(u64 number, u32 by) { return number >> 32 ? number / by : u32(number) / by; }

void start_block(Block& block, u64 number) {
    const Launch& launch = *block.launch;
    block.number = number;
    block.in_order = !block.shuffled() && block.mode != Mode::profile;
    block.may_loop = block.in_order && block.mode == Mode::run && !launch.module->instrumented && launch.cluster_size() == 1;
    block.random = Random(launch.seed * 0xD1B54A32D192ED03 + number);
    const u64 row = quotient(number, launch.grid.x);
    const u64 plane = quotient(row, launch.grid.y);
    block.index = {u32(number - row * launch.grid.x), u32(row - plane * launch.grid.y), u32(plane)};
    for (Warp& warp : block.warps) {
        u32 lanes = warp.lanes;
        warp = Warp{};
        warp.lanes = warp.ready = lanes;
    }
    if (launch.module->is_asynchronous) {
        for (Thread& thread : block.threads) {
            thread.awaited = nullptr;
            thread.in_cluster = thread.at_named = false;
            thread.gave_up_at = 0;
            thread.bulk_groups = thread.product_groups = thread.cluster_arrivals = 0;
            thread.pending.clear();
        }
        block.mbarriers.clear();
        block.named.clear();
        block.flying = 0;
    }
    block.begun = block.ended = false;
    block.events_seen = 0;
    block.done = 0;
    if (block.cluster->checks) block.cluster->checks->begin_block(block.rank);
    block.arrivals = {};
    if (block.recorder) block.recorder->begin_block(number);
}

Outcome run_block(Block& block) {
    u32 idle_passes = 0;
    const bool loops = !block.begun && block.may_loop && !block.launch->threads_wait.load(std::memory_order_relaxed);
    if (guarded && !block.begun && block.launch->cluster_size() == 1) clear_shared(block);
    block.begun = true;
    if (loops && !stopped(block)) {
        if (loop_over_threads(block)) {
            end_block(block);
            return Outcome::finished;
        }
        run_warp(block, block.warp);
    }
    for (;;) {
        u32 done_before = block.done;
        run_warps(block);
        if (!stopped(block)) make_copies(*block.cluster);
        if (stopped(block)) return Outcome::stopped;
        complete_cluster_barrier(*block.cluster);
        wake_waiting(block);
        ThreadCounts counts = count(block);
        block.done = counts.done;
        u32 alive = block.thread_count - counts.done;
        if (!alive) {
            end_block(block);
            return Outcome::finished;
        }
        if (counts.ready) {
            // Threads that used up their turns, or woke. If nothing comes of it twice, they may be waiting for another block.
            idle_passes = counts.done == done_before ? idle_passes + 1 : 0;
            if (idle_passes >= 2) return Outcome::spinning;
        } else if (counts.at_block_barrier == alive) {
            if (!barrier_is_sound(block, counts)) {
                block.launch->stopped = true;
                return Outcome::stopped;
            }
            open_barrier(block);
            idle_passes = 0;
        } else if (counts.at_grid_barrier == alive) {
            return Outcome::at_grid_barrier;
        } else if (counts.waiting && !watches_shared_memory(block)) {
            return Outcome::spinning;
        } else if (block.cluster->blocks.size() > 1) {
            return Outcome::waiting;
        } else if (!give_up_waits(block)) {
            report_deadlock(block);
            block.launch->stopped = true;
            return Outcome::stopped;
        }
    }
}

}  // namespace lk

using namespace lk;

static void wait_at_barrier(Block& block, int site, bool predicate) {
    block.thread->barrier_site = site;
    Block::Arrivals& arrivals = block.arrivals;
    arrivals.differ |= arrivals.count > 0 && arrivals.site != site;
    arrivals.site = site;
    arrivals.count++;
    arrivals.yes += predicate;
    wait_in(block, &Warp::at_block_barrier);
}

void lk_block_barrier(int site) { wait_at_barrier(enter_runtime(), site, false); }

int lk_block_barrier_reduce(int reduction, int predicate, int site) {
    Block& block = enter_runtime();
    wait_at_barrier(block, site, predicate != 0);
    switch (reduction) {
        case lk_reduce_count: return int(block.barrier_count);
        case lk_reduce_and: return block.barrier_all;
        default: return block.barrier_count != 0;
    }
}

void lk_grid_barrier() { wait_in(enter_runtime(), &Warp::at_grid_barrier); }

void lk_wait_while_equal(const unsigned* word, unsigned value) {
    Block& block = enter_runtime();
    while (__atomic_load_n(word, __ATOMIC_ACQUIRE) == value) {
        block.thread->watched = word;
        block.thread->watched_value = value;
        wait_in(block, &Warp::waiting);
    }
}

void lk_yield() {
    if (!current()) return;  // the host's own load of an atomic
    Block& block = enter_runtime();
    block.warp_budget -= block.worker->turn / 4;
    pause(block);
    if (block.trace) trace_resume(block);
}

void lk_release(const void* object) {
    if (Recorder* recorder = checker()) recorder->release(current()->thread_number, reinterpret_cast<u64>(object));
}

void lk_acquire(const void* object) {
    if (Recorder* recorder = checker()) recorder->acquire(current()->thread_number, reinterpret_cast<u64>(object));
}
