// builtins.h: threadIdx and its relatives: constant objects, one a thread of the operating system, which the scheduler sets.
//
// gcc takes an extern const object for one that nobody changes, so it keeps threadIdx.x in a register across barriers, and the
// hooks do not see it read. Each thread of a kernel has a stack of its own, so what it keeps there is its own index.
#pragma once

#include "../../runtime/abi.h"
#include "lk/vectors.h"

#define LK_BUILTIN(symbol) __asm__(symbol) __attribute__((tls_model("initial-exec")))

extern "C" {
extern const __thread uint3 threadIdx LK_BUILTIN("lk_thread_index");
extern const __thread uint3 blockIdx LK_BUILTIN("lk_block_index");
extern const __thread uint3 blockDim LK_BUILTIN("lk_block_extent");
extern const __thread uint3 gridDim LK_BUILTIN("lk_grid_extent");
}

constexpr int warpSize = 32;
