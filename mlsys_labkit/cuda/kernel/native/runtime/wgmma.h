// wgmma.h: products of a warpgroup, and what of them a thread has not waited for.
#pragma once

#include "engine.h"

namespace lk {

// All lanes of a warp have come to the same product: it is made.
void multiply_warpgroup(Block& block, u32 group);

// check, wgmma_groups.cpp: reads of a product's operands in shared memory, by their addresses. False where the launch ends.
bool check_operands(Block& block, const std::vector<u64>& chunks);

// An access to variables of the thread, some of which are results that it has not waited for.
void check_pending(Block& block, u64 address, u64 bytes, Op op, u64 pc);

}  // namespace lk
