// copies.h: asynchronous copies into a block's shared memory that no thread has waited for: no thread may access their bytes yet.
//
// The simulator copies the bytes when a copy is started. A copy belongs to a batch of its thread, which commits batches and
// waits for all but the last few, or to a phase of a barrier. The first thread that has waited for the phase ends its copies.
// The shadows then tell whether other threads are ordered after that wait.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

namespace lk {

struct AsyncCopy {
    uint64_t offset;  // of its destination, from the start of the thread-local segment
    uint32_t bytes;
    uint32_t thread;   // linear in the block
    uint64_t pc;       // of its start
    uint64_t barrier;  // 0: it belongs to a batch of its thread
    uint32_t number;   // of the batch, or of the barrier's phase
};

class AsyncCopies {
public:
    AsyncCopies(uint32_t threads, uint64_t shared_bytes) : threads_(threads), shared_bytes_(shared_bytes) {}

    void begin_block();

    // Of the thread's batch that is open, or of the phase of a barrier (not 0).
    void start(uint32_t thread, uint64_t offset, uint32_t bytes, uint64_t pc, uint64_t barrier, uint32_t phase);
    void commit(uint32_t thread) { threads_[thread].batches++; }
    // The thread waits until no more than its last `left` batches are under way. Returns the copies that this ends.
    std::vector<AsyncCopy> wait_for_batches(uint32_t thread, uint32_t left);
    void wait_for_barrier(uint64_t barrier, uint32_t phase);

    // A copy into the range that nobody has waited for, or nullptr.
    const AsyncCopy* find(uint64_t offset, uint32_t bytes) const;
    bool is_committed(const AsyncCopy& copy) const { return copy.barrier || copy.number < threads_[copy.thread].batches; }

private:
    using Places = std::vector<uint32_t>;  // in copies_
    struct Thread {
        uint32_t batches = 0;  // committed
        Places under_way;      // of its batches, in their order
    };
    void forget(uint32_t place);

    std::vector<Thread> threads_;
    const uint64_t shared_bytes_;
    std::vector<AsyncCopy> copies_;
    Places free_;
    std::unordered_map<uint64_t, Places> of_barrier_;
    Places copy_of_byte_;  // 1 + its place, 0: none. Empty until the first copy
    uint64_t pending_ = 0;
};

}  // namespace lk
