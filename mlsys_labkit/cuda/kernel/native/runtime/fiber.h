// fiber.h: a stack and the registers to go on with it. Switching costs a few nanoseconds and no system call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lk {

struct Fiber {
    void* stack_pointer;
    char* top;
    char* low;  // lowest usable byte; a guard lies below
    uint64_t limit = 0;   // end of the frames of the kernel that runs
    uint64_t lowest = 0;  // that they have reached, where a profile counts
};

// All stacks lie in one reservation: a single comparison tells a kernel's local variables from the rest of memory.
extern uint64_t stacks_begin;
extern uint64_t stacks_bytes;
inline bool is_local(uint64_t address) { return address - stacks_begin < stacks_bytes; }

// Saves the running context in *from and goes on with `to`.
extern "C" void lk_switch(void** from, void* to);

// Calls run(arguments), and notes in *limit where its frames end. What it is to find again when it returns lies above.
extern "C" void lk_enter(void (*run)(void**), void** arguments, uint64_t* limit);

// A fiber that will run entry(), which never returns. nullptr when addresses or memory run out. Each OS thread keeps a free list
// of its own and comes here only when that is empty; a lock inside serves them.
Fiber* make_fiber(void (*entry)());
// Takes back what a free list has beyond so many: the next launch may need it on another OS thread.
void share_fibers(std::vector<Fiber*>& free_fibers, size_t kept);
// Forgets what the fiber was doing: it will run entry() again.
void reset_fiber(Fiber* fiber, void (*entry)());
// True when a fault at this address means that a stack overflowed.
bool in_stack_guard(uint64_t address);

}  // namespace lk
