// residency.cpp: the blocks that are resident, and the block whose contents shared memory holds.
//
// A block that waits for other blocks, at a grid barrier or by spinning, stays resident while its OS thread starts the next
// one, as on a GPU, where blocks that wait for each other must be resident together. Blocks of one OS thread share the
// storage behind __shared__, so its contents are swapped with them.
#include "residency.h"

#include "cluster.h"

#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>

namespace lk {

namespace {

// Blocks that only spin: more of them than a GPU keeps resident need not be waited for.
constexpr size_t kMostSpinning = 64;
constexpr u32 kMostSpinningThreads = 16384;
// Blocks of resident clusters run so often before another cluster starts, which they may wait for.
constexpr u32 kTurnsOfClusters = 64;
// Fibers that the OS threads keep between launches, all together: stacks beyond what a full device needs (fiber.cpp).
constexpr size_t kMostKept = 8192;

class Residency {
public:
    Residency(Worker& worker, Launch& launch, Grid& grid) : worker_(worker), launch_(launch), grid_(grid) {
        shared_begin_ = reinterpret_cast<u64>(launch.module->shared_segment());
    }

    void run() {
        while (!stopped()) {
            Block* block = choose();
            if (!block) {
                if (resident_.empty()) return;
                continue;
            }
            run(*block);
        }
        if (launch_.timed_out) report_timeout();
        for (Block* block : resident_) abandon_block(*block);
    }

private:
    bool stopped() const { return launch_.stopped.load(std::memory_order_relaxed); }

    // A resident block that can go on, else a new one. nullptr: none now.
    Block* choose() {
        bool all_at_barrier = true;
        bool room = resident_.size() < kMostSpinning && resident_.size() * launch_.thread_count() < kMostSpinningThreads;
        for (size_t i = 0; i < resident_.size(); i++) {
            Block* block = resident_[i];
            if (block->at_grid_barrier && grid_.passed(block->grid_generation)) return pass_barrier(*block);
            all_at_barrier = all_at_barrier && block->at_grid_barrier;
        }
        u64 number;
        if (launch_.cluster_size() > 1 && !all_at_barrier && turns_++ % kTurnsOfClusters) {
            if (Block* block = next_spinning()) return block;
        }
        if ((all_at_barrier || room) && grid_.take(&number)) return start(number);
        if (all_at_barrier) {
            if (!resident_.empty()) grid_.wait_for_barrier(resident_[0]->grid_generation);
            return nullptr;
        }
        if (Block* block = next_spinning()) return block;
        // Blocks wait for others of their clusters, and no such other can go on.
        for (Block* block : resident_) {
            if (!block->at_grid_barrier && give_up_waits(*block)) return block;
        }
        for (Block* block : resident_) {
            if (block->at_grid_barrier) continue;
            report_deadlock(*block);
            launch_.stopped = true;
            break;
        }
        return nullptr;
    }

    // Of those that spin or have something to hope for, the next in turn.
    Block* next_spinning() {
        for (size_t i = 0; i < resident_.size(); i++) {
            next_spinning_ = (next_spinning_ + 1) % resident_.size();
            Block* block = resident_[next_spinning_];
            if (!block->at_grid_barrier && block->events_seen != block->cluster->events + 1) return block;
        }
        return nullptr;
    }

    Block* pass_barrier(Block& block) {
        block.at_grid_barrier = false;
        for (Warp& warp : block.warps) {
            warp.ready |= warp.at_grid_barrier;
            warp.at_grid_barrier = 0;
        }
        return &block;
    }

    // Starts all blocks of a cluster; returns the first.
    Block* start(u64 number) {
        if (free_.empty()) make_cluster();
        Cluster* cluster = free_.back();
        free_.pop_back();
        if (cluster->blocks.size() == 1) {
            Block* block = cluster->blocks[0];
            numbers_.assign(1, number);
            start_cluster(*cluster);
            resident_.push_back(block);
            if (launch_.record) introduce(*cluster, numbers_);
            start_block(*block, number);
            return block;
        }
        const lk_uint3& size = launch_.cluster;
        const u64 across = launch_.grid.x / size.x;
        const u64 down = launch_.grid.y / size.y;
        const u64 first[] = {number % across * size.x, number / across % down * size.y, number / across / down * size.z};
        std::vector<u64>& numbers = numbers_;
        numbers.clear();
        start_cluster(*cluster);
        for (Block* block : cluster->blocks) {
            const u64 x = first[0] + block->rank % size.x;
            const u64 y = first[1] + block->rank / size.x % size.y;
            const u64 z = first[2] + block->rank / size.x / size.y;
            resident_.push_back(block);
            block->shared_image.resize(launch_.module->shared_bytes);
            numbers.push_back(x + launch_.grid.x * (y + launch_.grid.y * z));
        }
        if (launch_.record) introduce(*cluster, numbers);
        for (Block* block : cluster->blocks) start_block(*block, numbers[block->rank]);
        return cluster->blocks[0];
    }

    // Tells the recorders where the blocks of their cluster keep shared memory.
    void introduce(Cluster& cluster, const std::vector<u64>& numbers) {
        std::vector<Peer> peers;
        for (Block* block : cluster.blocks) {
            const u64 image = reinterpret_cast<u64>(block->shared_image.data());
            peers.push_back({{image, image + block->shared_image.size()}, block->recorder.get(), block, numbers[block->rank]});
        }
        for (Block* block : cluster.blocks) block->recorder->join(cluster.checks.get(), block->rank, peers);
    }

    void make_cluster() {
        auto cluster = std::make_unique<Cluster>();
        cluster->extent = launch_.cluster;
        if (launch_.mode == Mode::check) {
            cluster->checks = std::make_unique<AsyncChecks>(launch_.cluster_size(), launch_.thread_count(),
                                                            launch_.module->shared_bytes);
        }
        for (u32 rank = 0; rank < launch_.cluster_size(); rank++) {
            make_block();
            Block& block = *blocks_.back();
            block.cluster = cluster.get();
            block.rank = rank;
            cluster->blocks.push_back(&block);
        }
        free_.push_back(cluster.get());
        clusters_.push_back(std::move(cluster));
    }

    void make_block() {
        auto block = std::make_unique<Block>();
        block->launch = &launch_;
        block->worker = &worker_;
        block->mode = launch_.mode;
        block->thread_count = launch_.thread_count();
        block->warp_count = (block->thread_count + kWarpSize - 1) / kWarpSize;
        block->threads.resize(block->thread_count + kAhead);
        block->warps.resize(block->warp_count);
        for (u32 i = 0; i < block->thread_count; i++) {
            const lk_uint3& extent = launch_.block;
            block->threads[i].index = {i % extent.x, i / extent.x % extent.y, i / extent.x / extent.y};
            block->warps[i / kWarpSize].lanes |= 1u << i % kWarpSize;
        }
        block->shared_begin = shared_begin_;
        block->shared_end = shared_begin_ + launch_.module->shared_bytes;
        if (launch_.record) block->recorder = std::make_unique<Recorder>(*launch_.record, shared_begin_);
        blocks_.push_back(std::move(block));
    }

    void load_shared_memory(Block& block) {
        if (in_memory_ == &block) return;
        char* memory = reinterpret_cast<char*>(shared_begin_);
        size_t bytes = launch_.module->shared_bytes;
        if (in_memory_) in_memory_->shared_image.assign(memory, memory + bytes);
        if (!block.shared_image.empty()) memcpy(memory, block.shared_image.data(), bytes);
        in_memory_ = &block;
    }

    void finish(Block& block) {
        resident_.erase(std::find(resident_.begin(), resident_.end(), &block));
        Cluster& cluster = *block.cluster;
        if (cluster.blocks.size() > 1) {  // what others still read, although they should not
            const char* memory = reinterpret_cast<char*>(shared_begin_);
            std::copy(memory, memory + launch_.module->shared_bytes, block.shared_image.begin());
        }
        in_memory_ = nullptr;
        cluster.running = nullptr;
        if (std::all_of(cluster.blocks.begin(), cluster.blocks.end(), [](const Block* each) { return each->ended; })) {
            make_copies(cluster);
            for (Block* each : cluster.blocks) each->shared_image.clear();
            free_.push_back(&cluster);
        }
        finished_++;
        last_finish_ = std::chrono::steady_clock::now();
        grid_.finish_block();
    }

    void run(Block& block) {
        load_shared_memory(block);
        block.cluster->running = &block;
        block.events_seen = 0;
        lk_block_index = block.index;
        current_block = &block;
        Outcome outcome = run_block(block);
        current_block = nullptr;
        switch (outcome) {
            case Outcome::finished: finish(block); break;
            case Outcome::waiting: block.events_seen = block.cluster->events + 1; break;
            case Outcome::at_grid_barrier:
                block.at_grid_barrier = true;
                block.grid_generation = grid_.arrive();
                break;
            case Outcome::spinning:
            case Outcome::stopped: break;
        }
    }

    // Whether blocks ended one after the other until the time was up: the last one runs no longer than is usual here.
    bool was_getting_on() const {
        const auto now = std::chrono::steady_clock::now();
        if (!finished_) return false;
        const std::chrono::nanoseconds each = (last_finish_ - begin_) / static_cast<int64_t>(finished_);
        return now - last_finish_ < std::max<std::chrono::nanoseconds>(4 * each, (now - begin_) / 4);
    }

    // Where the thread that ran last stands.
    void report_timeout() {
        if (resident_.empty()) return;
        if (!was_getting_on()) launch_.stuck = true;
        bool here = std::find(resident_.begin(), resident_.end(), in_memory_) != resident_.end();
        const Block& block = here ? *in_memory_ : *resident_[0];
        if (block.thread) launch_.findings.report(make_finding(block, FindingKind::timeout));
    }

    Worker& worker_;
    Launch& launch_;
    Grid& grid_;
    u64 shared_begin_;
    std::vector<std::unique_ptr<Block>> blocks_;
    std::vector<std::unique_ptr<Cluster>> clusters_;
    std::vector<Cluster*> free_;
    std::vector<Block*> resident_;
    std::vector<u64> numbers_;  // of the blocks of the cluster that starts
    Block* in_memory_ = nullptr;
    size_t next_spinning_ = 0;
    u32 turns_ = 0;
    u64 finished_ = 0;  // blocks
    const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
    std::chrono::steady_clock::time_point last_finish_ = begin_;
};

// A number that shares no factor with count, so that its multiples visit every block.
u64 random_stride(Random& random, u64 count) {
    if (count < 3) return 1;
    for (;;) {
        u64 stride = 1 + random.next() % std::min<u64>(count - 1, 1 << 20);
        if (std::gcd(stride, count) == 1) return stride;
    }
}

}  // namespace

char* Module::shared_segment() const {
    shared_anchor();  // makes the segment on this OS thread's first use of it
    void* segment = nullptr;
    dlinfo(handle, RTLD_DI_TLS_DATA, &segment);
    return static_cast<char*>(segment);
}

Grid::Grid(Launch& launch) : launch_(launch), total_(launch.block_count() / launch.cluster_size()) {
    const u64 size = launch.cluster_size();
    count_ = launch.sample_blocks ? std::min((launch.sample_blocks + size - 1) / size, total_) : total_;
    if (!launch.seed) return;
    Random random(launch.seed);
    stride_ = random_stride(random, count_);
    start_ = random.next() % count_;
}

bool Grid::take(u64* number) {
    if (exhausted()) return false;
    u64 i = next_.fetch_add(1, std::memory_order_relaxed);
    if (i >= count_) return false;
    if (stride_ == 1 && start_ == 0 && count_ == total_) {
        *number = i;
        return true;
    }
    u64 place = u64((static_cast<unsigned __int128>(i) * stride_ + start_) % count_);
    *number = u64(static_cast<unsigned __int128>(place) * total_ / count_);
    return true;
}

// Either this finds a block that waits, or that block finds this one finished.
void Grid::finish_block() {
    finished_++;
    if (!waiting_) return;
    std::lock_guard lock(mutex_);
    open_if_complete();
}

u64 Grid::arrive() {
    std::lock_guard lock(mutex_);
    waiting_++;
    u64 generation = generation_;
    open_if_complete();
    return generation;
}

void Grid::open_if_complete() {
    if (!waiting_ || waiting_ + finished_ < count_ * launch_.cluster_size()) return;
    waiting_ = 0;
    if (launch_.record) launch_.record->grid_barrier();
    generation_.fetch_add(1, std::memory_order_release);
    opened_.notify_all();
}

void Grid::wait_for_barrier(u64 generation) {
    std::unique_lock lock(mutex_);
    opened_.wait_for(lock, std::chrono::milliseconds(10), [&] { return generation_ > generation; });
}

void run_blocks(Worker& worker, Launch& launch, Grid& grid) {
    lk_block_extent = launch.block;
    lk_grid_extent = launch.grid;
    worker.turn = kLongTurn;
    Residency(worker, launch, grid).run();
    share_fibers(worker.free_fibers, std::min<size_t>(kMaxThreads, kMostKept / pool_size()));
}

}  // namespace lk
