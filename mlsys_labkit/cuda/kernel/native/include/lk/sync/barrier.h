// barrier.h: cuda::barrier: threads arrive, and wait for a phase to end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "lk/groups/aligned_size.h"
#include "lk/groups/copy.h"
#include "lk/sync/mbarrier.h"
#include "lk/sync/scope.h"

namespace lk {

struct NothingOnCompletion {
    LK_UNRECORDED void operator()() const {}
};

// Counts down to the end of a phase. `counts` holds the arrivals that are missing in its lower half, and those of a whole phase
// in its upper half: one word, so that both change together.
template <class Word>
struct PhaseCounter {
    static constexpr int half = 4 * sizeof(Word);
    static constexpr Word one_of_each = (Word(1) << half) + 1;

    Word counts;
    unsigned phase;

    LK_UNRECORDED void start(Word expected) {
        __atomic_store_n(&counts, expected << half | expected, __ATOMIC_SEQ_CST);
        __atomic_store_n(&phase, 0u, __ATOMIC_SEQ_CST);
    }

    // Subtracts `from_counts` and returns whether that was the last arrival. The phase ends when next() is called.
    LK_UNRECORDED bool arrive(Word from_counts) {
        const Word now = __atomic_sub_fetch(&counts, from_counts, __ATOMIC_SEQ_CST);
        return Word(now << half) == 0;
    }

    LK_UNRECORDED void next() {
        const Word expected = __atomic_load_n(&counts, __ATOMIC_SEQ_CST) >> half;
        __atomic_store_n(&counts, expected << half | expected, __ATOMIC_SEQ_CST);
        __atomic_add_fetch(&phase, 1u, __ATOMIC_SEQ_CST);
    }
};

// As large as CUDA's where it stands in shared memory.
template <cuda::thread_scope scope>
using CounterOf = PhaseCounter<std::conditional_t<scope == cuda::thread_scope_block, uint32_t, uint64_t>>;

// An arrival is an atomic on the counter, and releases what its thread did before. The released object is not the counter's own
// address: the atomic of the next arrival would acquire it, and check would miss threads that did not wait for init().
template <class Counter>
LK_INLINE void arriving(Counter* counter) {
#ifdef __SANITIZE_THREAD__
    lk_atomic(counter, 8);
#endif
    lk_release(reinterpret_cast<char*>(counter) + 1);
}

template <class Counter>
LK_INLINE void await_phase_after(const Counter* counter, unsigned phase) {
    lk_wait_while_equal(&counter->phase, phase);
    lk_acquire(reinterpret_cast<const char*>(counter) + 1);
    if constexpr (recording) {
        lk_barrier_awaited(counter, phase);
    }
}

}  // namespace lk

namespace cuda {

template <thread_scope Scope, class Completion = lk::NothingOnCompletion>
class alignas(8) barrier : private Completion {
public:
    class arrival_token {
        friend class barrier;
        unsigned lk_phase;
    };

    barrier() = default;
    LK_INLINE explicit barrier(ptrdiff_t expected, Completion completion = Completion()) : Completion(completion) {
        lk_start(expected);
    }
    barrier(const barrier&) = delete;
    barrier& operator=(const barrier&) = delete;

    static constexpr ptrdiff_t max() noexcept { return Scope == thread_scope_block ? 0xffff : 0x7fffffff; }

    [[nodiscard]] LK_INLINE arrival_token arrive(ptrdiff_t update = 1) {
        arrival_token token;
        token.lk_phase = lk_arrive(update);
        return token;
    }

    LK_INLINE void wait(arrival_token&& token) const { lk_wait(token.lk_phase); }
    LK_INLINE void arrive_and_wait() { lk_wait(lk_arrive(1)); }
    LK_INLINE void arrive_and_drop() { lk_arrive(Counter::one_of_each); }

    // Until the phase of this parity has ended.
    LK_INLINE void wait_parity(bool parity) const {
        const unsigned phase = lk_phase();
        lk_wait((phase & 1) == parity ? phase : phase - 1);
    }

    LK_INLINE bool try_wait(arrival_token&& token) const { return lk_try(token.lk_phase); }
    LK_INLINE bool try_wait_parity(bool parity) const { return lk_try(parity); }

    // Of a copy that this barrier waits for.
    LK_INLINE lk::CopyEnd lk_copy_end() const {
        if constexpr (lk::recording) {
            return {&lk_counter, lk_phase()};
        }
        return {};
    }

    LK_OPAQUE void lk_start_opaque(ptrdiff_t expected) { lk_counter.start(Word(expected)); }
    LK_INLINE void lk_start(ptrdiff_t expected) {
#ifdef __SANITIZE_THREAD__
        lk_write(&lk_counter, 8);
#endif
        lk_start_opaque(expected);
    }

private:
    using Counter = lk::CounterOf<Scope>;
    using Word = decltype(Counter::counts);

    LK_INLINE unsigned lk_arrive(ptrdiff_t update) {
        lk::arriving(&lk_counter);
        return lk_count_down(Word(update));
    }

    LK_OPAQUE unsigned lk_count_down(Word from_counts) {
        const unsigned phase = lk_phase();
        if (lk_counter.arrive(from_counts)) {
            static_cast<Completion&>(*this)();
            lk_counter.next();
        }
        return phase;
    }

    LK_INLINE void lk_wait(unsigned phase) const { lk::await_phase_after(&lk_counter, phase); }

    // Whether a phase of this parity has ended; gives others a turn where not.
    LK_OPAQUE bool lk_try(unsigned parity) const {
        if ((lk_phase() & 1) == (parity & 1)) {
            lk_yield();
        }
        if ((lk_phase() & 1) == (parity & 1)) {
            return false;
        }
        lk_wait(lk_phase() - 1);
        return true;
    }

    LK_OPAQUE unsigned lk_phase() const { return __atomic_load_n(&lk_counter.phase, __ATOMIC_SEQ_CST); }

    Counter lk_counter;
};

// In shared memory: Hopper's own barrier, which inline PTX and cuda::ptx may use through its native handle, too.
template <>
class alignas(8) barrier<thread_scope_block, lk::NothingOnCompletion> {
public:
    using arrival_token = uint64_t;  // as in CUDA's own

    barrier() = default;
    LK_INLINE explicit barrier(ptrdiff_t expected, lk::NothingOnCompletion = {}) { lk_start(expected); }
    barrier(const barrier&) = delete;
    barrier& operator=(const barrier&) = delete;

    static constexpr ptrdiff_t max() noexcept { return (1 << 20) - 1; }

    [[nodiscard]] LK_INLINE arrival_token arrive(ptrdiff_t update = 1) { return lk::mbarrier_arrive(&lk_word, unsigned(update)); }

    LK_INLINE void wait(arrival_token&& token) const { lk_wait(unsigned(token)); }
    LK_INLINE void arrive_and_wait() { lk_wait(lk::mbarrier_arrive(&lk_word)); }
    LK_INLINE void arrive_and_drop() { lk::mbarrier_arrive(&lk_word, 1, 0, true); }
    LK_INLINE void wait_parity(bool parity) const { lk::mbarrier_wait_parity(&lk_word, parity, false); }
    LK_INLINE bool try_wait(arrival_token&& token) const { return lk::mbarrier_wait(&lk_word, unsigned(token), true); }
    LK_INLINE bool try_wait_parity(bool parity) const { return lk::mbarrier_wait_parity(&lk_word, parity, true); }

    // Of a copy that this barrier waits for; its threads make it themselves.
    LK_INLINE lk::CopyEnd lk_copy_end() const {
        if constexpr (lk::recording) {
            return {&lk_word, lk_mbarrier_phase(&lk_word)};
        }
        return {};
    }

    LK_INLINE void lk_start(ptrdiff_t expected) { lk::mbarrier_init(&lk_word, unsigned(expected)); }
    LK_INLINE uint64_t* lk_handle() { return &lk_word; }

private:
    LK_INLINE void lk_wait(unsigned phase) const { lk::mbarrier_wait(&lk_word, phase, false); }

    mutable uint64_t lk_word;
};

template <thread_scope Scope, class Completion>
LK_INLINE void init(barrier<Scope, Completion>* at, ptrdiff_t expected) {
    at->lk_start(expected);
}

// Copies that a barrier waits for. The simulator copies when they are started; check reports reads before the wait.
template <class Size, thread_scope Scope, class Completion>
LK_INLINE void memcpy_async(void* to, const void* from, Size bytes, barrier<Scope, Completion>& until) {
    lk::copy_by_group(0, 1, to, from, bytes, until.lk_copy_end());
}

template <class Group, class Size, thread_scope Scope, class Completion>
LK_INLINE void memcpy_async(const Group& group, void* to, const void* from, Size bytes, barrier<Scope, Completion>& until) {
    lk::copy_by_group(group.thread_rank(), group.size(), to, from, bytes, until.lk_copy_end());
}

}  // namespace cuda
