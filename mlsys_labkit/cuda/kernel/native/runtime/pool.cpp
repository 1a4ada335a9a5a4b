// pool.cpp: OS threads that live as long as the process, and a launch on them.
#include <sched.h>
#include <signal.h>
#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "faults.h"
#include "residency.h"

namespace lk {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::duration;
using std::chrono::microseconds;
using std::chrono::milliseconds;

// A thread that runs so long without a switch may be spinning; the interval shrinks each time that one was made to yield.
constexpr microseconds kLongTick = milliseconds(10);
constexpr microseconds kShortTick = microseconds(200);

struct Job {
    Launch& launch;
    Grid& grid;
    std::mutex mutex;
    std::condition_variable finished;
    u32 running;
};

class PoolThread {
public:
    PoolThread() : thread_([this] { loop(); }) {}

    void give(Job& job) {
        {
            std::lock_guard lock(mutex_);
            job_ = &job;
        }
        wake_.notify_one();
    }

    // True when it has not switched between fibers since the last call.
    bool is_stuck() {
        u64 turns = worker_.turns.load(std::memory_order_relaxed);
        bool stuck = turns == turns_seen_;
        turns_seen_ = turns;
        return stuck;
    }
    void interrupt() { pthread_kill(thread_.native_handle(), kInterrupt); }

private:
    void loop() {
        prepare_thread_for_faults();
        std::unique_lock lock(mutex_);
        for (;;) {
            wake_.wait(lock, [&] { return job_ != nullptr; });
            Job& job = *job_;
            job_ = nullptr;
            lock.unlock();
            run_blocks(worker_, job.launch, job.grid);
            {
                std::lock_guard done(job.mutex);
                if (--job.running == 0) job.finished.notify_one();
            }
            lock.lock();
        }
    }

    std::mutex mutex_;
    std::condition_variable wake_;
    Job* job_ = nullptr;
    Worker worker_;
    u64 turns_seen_ = 0;
    std::thread thread_;  // last, so that it finds the rest made; it ends with the process
};

std::vector<std::unique_ptr<PoolThread>>& pool() {
    static auto* threads = [] {
        install_fault_handlers();
        auto* made = new std::vector<std::unique_ptr<PoolThread>>;
        for (u32 i = 0; i < pool_size(); i++) made->push_back(std::make_unique<PoolThread>());
        return made;
    }();
    return *threads;
}

// Waits for the job's end; meanwhile stops it when time is up or the user asks, and lets nothing spin for ever.
void watch(Job& job, u32 threads, Clock::time_point begin) {
    Launch& launch = job.launch;
    microseconds tick = kLongTick;
    std::unique_lock lock(job.mutex);
    while (!job.finished.wait_for(lock, tick, [&] { return job.running == 0; })) {
        lock.unlock();
        bool late = launch.timeout_seconds > 0 && duration<double>(Clock::now() - begin).count() > launch.timeout_seconds;
        bool cancelled = launch.cancelled && launch.cancelled->load(std::memory_order_relaxed);
        if (late && !launch.stopped) launch.timed_out = true;
        if (late || cancelled) launch.stopped = true;
        if (launch.mode == Mode::run || launch.stopped) {
            for (u32 i = 0; i < threads; i++) {
                PoolThread& thread = *pool()[i];
                if (!thread.is_stuck() && !launch.stopped) continue;
                thread.interrupt();
                tick = std::max(kShortTick, tick / 2);
            }
        }
        lock.lock();
    }
}

}  // namespace

u32 pool_size() {
    static const u32 size = [] {
        if (const char* wanted = getenv("LK_CUDA_THREADS")) return u32(std::clamp(atoi(wanted), 1, 256));
        cpu_set_t cpus;
        if (sched_getaffinity(0, sizeof cpus, &cpus) != 0) return 1u;
        return std::max(1u, u32(CPU_COUNT(&cpus)));
    }();
    return size;
}

void start_pool() { pool(); }

void run_launch(Launch& launch) {
    launch.description.check = launch.mode == Mode::check;
    launch.description.profile = launch.mode == Mode::profile;
    launch.description.blocks_total = launch.block_count();
    launch.description.threads_per_block = launch.thread_count();
    if (launch.mode != Mode::run) launch.record = std::make_unique<LaunchRecord>(launch.description, launch.findings);
    Grid grid(launch);
    auto& threads = pool();
    u32 count = u32(std::min<u64>(threads.size(), launch.block_count()));
    Job job{launch, grid, {}, {}, count};
    auto begin = Clock::now();
    for (u32 i = 0; i < count; i++) threads[i]->give(job);
    watch(job, count, begin);
    if (launch.record) launch.record->finish();
    launch.blocks_run = grid.finished();
    launch.seconds = duration<double>(Clock::now() - begin).count();
}

}  // namespace lk
