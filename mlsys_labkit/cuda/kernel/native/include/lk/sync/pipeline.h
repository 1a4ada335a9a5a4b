// pipeline.h: cuda::pipeline: producers fill stages, consumers empty them, in turns.
//
// A stage has two barriers: filled, where producers arrive, and emptied, where consumers do. In round r of a stage a consumer
// waits for phase r of filled to end, a producer for phase r - 1 of emptied.
#pragma once

#include "lk/sync/barrier.h"

namespace cuda {

enum class pipeline_role { producer, consumer };

template <thread_scope Scope, uint8_t Stages>
class pipeline_shared_state {
public:
    pipeline_shared_state() = default;
    pipeline_shared_state(const pipeline_shared_state&) = delete;
    pipeline_shared_state& operator=(const pipeline_shared_state&) = delete;

    lk::CounterOf<Scope> lk_filled[Stages];
    lk::CounterOf<Scope> lk_emptied[Stages];
    unsigned lk_producers;
};

template <thread_scope Scope>
class pipeline {
public:
    using lk_Counter = lk::CounterOf<Scope>;

    pipeline(pipeline&&) = default;
    pipeline(const pipeline&) = delete;
    pipeline& operator=(const pipeline&) = delete;

    LK_INLINE pipeline(lk_Counter* filled, lk_Counter* emptied, unsigned stages)
        : lk_filled(filled), lk_emptied(emptied), lk_stages(stages), lk_head(0), lk_tail(0) {}

    LK_INLINE void producer_acquire() {
        const unsigned round = lk_head / lk_stages;
        if (round > 0) {
            lk::await_phase_after(&lk_emptied[lk_head % lk_stages], round - 1);
        }
    }
    LK_INLINE void producer_commit() { lk_arrive(lk_filled[lk_head++ % lk_stages]); }
    LK_INLINE void consumer_wait() { lk::await_phase_after(&lk_filled[lk_tail % lk_stages], lk_tail / lk_stages); }
    LK_INLINE void consumer_release() { lk_arrive(lk_emptied[lk_tail++ % lk_stages]); }
    LK_INLINE bool quit() { return true; }
    // Of a copy into the stage that this thread fills.
    LK_INLINE lk::CopyEnd lk_copy_end() const { return {&lk_filled[lk_head % lk_stages], lk_head / lk_stages}; }

private:
    LK_INLINE static void lk_arrive(lk_Counter& counter) {
        lk::arriving(&counter);
        lk_count_down(counter);
    }
    LK_OPAQUE static void lk_count_down(lk_Counter& counter) {
        if (counter.arrive(1)) {
            counter.next();
        }
    }

    lk_Counter* lk_filled;
    lk_Counter* lk_emptied;
    unsigned lk_stages;
    unsigned lk_head;  // stages that this thread has filled, as a producer
    unsigned lk_tail;  // and emptied, as a consumer
};

// A thread's own: a stage is a batch of its copies, and nobody else is asked.
template <>
class pipeline<thread_scope_thread> {
public:
    LK_INLINE void producer_acquire() {}
    LK_INLINE void producer_commit() {
        lk::copies_committed();
        ++lk_stages;
    }
    LK_INLINE void consumer_wait() {
        if (lk_stages > 0) {
            lk::copies_awaited(lk_stages - 1);
        }
    }
    LK_INLINE void consumer_release() { --lk_stages; }
    LK_INLINE bool quit() { return true; }
    LK_INLINE lk::CopyEnd lk_copy_end() const { return {}; }

private:
    unsigned lk_stages = 0;  // committed and not released
};

LK_INLINE pipeline<thread_scope_thread> make_pipeline() { return {}; }

template <uint8_t Stages>
LK_INLINE void pipeline_consumer_wait_prior(pipeline<thread_scope_thread>&) {
    lk::copies_awaited(Stages);
}

}  // namespace cuda

namespace lk {

// What shares a stage's state reads and writes it atomically, so that gcc leaves it in these functions, unrecorded.
template <class State>
LK_OPAQUE void count_producer(State* state, bool is_producer) {
    __atomic_add_fetch(&state->lk_producers, unsigned(is_producer), __ATOMIC_SEQ_CST);
}

template <class State>
LK_OPAQUE unsigned producers_of(const State* state) {
    return __atomic_load_n(&state->lk_producers, __ATOMIC_SEQ_CST);
}

template <class State>
LK_OPAQUE void set_stages(State* state, unsigned producers, unsigned consumers) {
    for (auto& stage : state->lk_filled) {
        stage.start(producers);
    }
    for (auto& stage : state->lk_emptied) {
        stage.start(consumers);
    }
    __atomic_store_n(&state->lk_producers, 0u, __ATOMIC_SEQ_CST);
}

template <class State>
LK_INLINE void start_stages(State* state, unsigned producers, unsigned consumers) {
#ifdef __SANITIZE_THREAD__
    lk_write(state, sizeof *state);
#endif
    set_stages(state, producers, consumers);
}

}  // namespace lk

namespace cuda {

// Every thread of the group fills and empties.
template <class Group, thread_scope Scope, uint8_t Stages>
LK_INLINE pipeline<Scope> make_pipeline(const Group& group, pipeline_shared_state<Scope, Stages>* state) {
    if (group.thread_rank() == 0) {
        lk::start_stages(state, group.size(), group.size());
    }
    group.sync();
    return pipeline<Scope>(state->lk_filled, state->lk_emptied, Stages);
}

// The first producer_count threads fill, the others empty.
template <class Group, thread_scope Scope, uint8_t Stages>
LK_INLINE pipeline<Scope> make_pipeline(const Group& group, pipeline_shared_state<Scope, Stages>* state, size_t producer_count) {
    if (group.thread_rank() == 0) {
        lk::start_stages(state, producer_count, group.size() - producer_count);
    }
    group.sync();
    return pipeline<Scope>(state->lk_filled, state->lk_emptied, Stages);
}

// Each thread says what it does.
template <class Group, thread_scope Scope, uint8_t Stages>
LK_INLINE pipeline<Scope> make_pipeline(const Group& group, pipeline_shared_state<Scope, Stages>* state, pipeline_role role) {
    if (group.thread_rank() == 0) {
        lk::start_stages(state, 0, 0);
    }
    group.sync();
    lk::count_producer(state, role == pipeline_role::producer);
    group.sync();
    if (group.thread_rank() == 0) {
        const unsigned producers = lk::producers_of(state);
        lk::start_stages(state, producers, group.size() - producers);
    }
    group.sync();
    return pipeline<Scope>(state->lk_filled, state->lk_emptied, Stages);
}

template <class Size, thread_scope Scope>
LK_INLINE void memcpy_async(void* to, const void* from, Size bytes, pipeline<Scope>& through) {
    lk::copy_by_group(0, 1, to, from, bytes, through.lk_copy_end());
}

template <class Group, class Size, thread_scope Scope>
LK_INLINE void memcpy_async(const Group& group, void* to, const void* from, Size bytes, pipeline<Scope>& through) {
    lk::copy_by_group(group.thread_rank(), group.size(), to, from, bytes, through.lk_copy_end());
}

}  // namespace cuda
