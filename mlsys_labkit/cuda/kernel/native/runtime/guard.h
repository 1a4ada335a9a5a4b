// guard.h: in the worker whose counts are marks, no access leaves what a kernel may touch, or changes where it returns to.
#pragma once

#include "engine.h"

namespace lk {

// A profile looks at accesses some time after they were made: by then a kernel could have rewritten the record of them. And
// what a kernel keeps on its stack outside of its variables no hook counts, and the next thread on this stack could read it.
extern bool guarded;

// Ends the launch, with a finding, before an access that is not allowed. frame: the hook's own.
void guard_access(Block& block, u64 address, u64 bytes, Op op, u64 pc, u64 frame);

// Before a block begins: its shared memory holds nothing of the block before it.
void clear_shared(Block& block);

// Before a thread begins: nothing is left on its stack of those before it.
void clear_stack(Fiber& fiber);

}  // namespace lk
