// synchronize.h: barriers, fences, clocks, and how a kernel stops.
#pragma once

#include "lk/builtins.h"
#include "lk/call_site.h"

// The place of the call tells barriers apart.
LK_INLINE void __syncthreads(int site = lk::call_site()) { lk_block_barrier(site); }

LK_INLINE int __syncthreads_count(int predicate, int site = lk::call_site()) {
    return lk_block_barrier_reduce(lk_reduce_count, predicate != 0, site);
}

LK_INLINE int __syncthreads_and(int predicate, int site = lk::call_site()) {
    return lk_block_barrier_reduce(lk_reduce_and, predicate != 0, site);
}

LK_INLINE int __syncthreads_or(int predicate, int site = lk::call_site()) {
    return lk_block_barrier_reduce(lk_reduce_or, predicate != 0, site);
}

LK_INLINE void __syncwarp(unsigned mask = 0xffffffffu) { lk_warp_barrier(mask); }

// The instrumented build is told of every fence.
LK_INLINE void __threadfence_block() { __atomic_thread_fence(__ATOMIC_ACQ_REL); }

LK_INLINE void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

LK_INLINE void __threadfence_system() { __threadfence(); }

LK_INLINE void __nanosleep(unsigned) { lk_yield(); }

LK_INLINE long long clock64() { return lk_clock64(); }

LK_INLINE void __trap() { lk_trap(); }

LK_INLINE void __brkpt() {}

LK_INLINE void __prof_trigger(int) {}
