// residency.h: the blocks of one OS thread. There is one at a time, unless blocks wait for each other.
#pragma once

#include <condition_variable>
#include <mutex>

#include "scheduler.h"

namespace lk {

// What the OS threads share during a launch.
class Grid {
public:
    explicit Grid(Launch& launch);

    // The next block to run, or the next cluster, by its linear number; false when all have been taken.
    bool take(u64* number);
    bool exhausted() const { return next_.load(std::memory_order_relaxed) >= count_; }

    void finish_block();
    u64 finished() const { return finished_; }
    // A block has come to a grid barrier. Returns which one, to ask passed() about.
    u64 arrive();
    bool passed(u64 generation) { return generation_.load(std::memory_order_acquire) > generation; }
    // Until some grid barrier opens, or a little while has passed.
    void wait_for_barrier(u64 generation);

private:
    void open_if_complete();

    Launch& launch_;
    u64 total_;    // clusters of the grid (blocks, where there are none)
    u64 count_;    // that are run: all, or the sample
    u64 stride_ = 1;  // the order in which blocks are taken: i * stride_ + start_, modulo count_
    u64 start_ = 0;
    std::atomic<u64> next_{0};
    std::atomic<u64> generation_{0};
    std::mutex mutex_;
    std::condition_variable opened_;
    std::atomic<u64> waiting_{0};
    std::atomic<u64> finished_{0};
};

// Runs blocks of the grid on the calling OS thread until none is left.
void run_blocks(Worker& worker, Launch& launch, Grid& grid);

}  // namespace lk
