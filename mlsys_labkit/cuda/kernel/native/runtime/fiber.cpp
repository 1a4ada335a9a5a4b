// fiber.cpp: the context switch (x86-64 and aarch64), and stacks with guards below them.
#include "fiber.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>

namespace lk {

uint64_t stacks_begin = 0;
uint64_t stacks_bytes = 0;

namespace {

// CUDA lets a thread have 512 KB of local memory. Only pages that are touched cost memory.
constexpr size_t kStackBytes = 640 << 10;
constexpr size_t kGuardBytes = 64 << 10;  // kernels probe every page of a large frame (-fstack-clash-protection)
constexpr size_t kStride = kStackBytes + kGuardBytes;
// A cooperative launch may fill the device: 132 SMs, 2,048 threads each. Fewer where addresses are limited.
constexpr size_t kReservations[] = {280'000, 20'000, 4'000};
// A guard costs two of the 65,530 mappings that Linux gives a process: a very large grid's last stacks go without, and are
// opened many at once, so that they are one mapping.
constexpr size_t kGuarded = 24'000;
constexpr size_t kOpenedAtOnce = 1'000;

std::mutex stacks_mutex;
size_t made = 0;
std::vector<Fiber*> shared;

bool reserve_stacks() {
    const char* wanted = getenv("LK_CUDA_STACKS");
    for (size_t count : kReservations) {
        if (wanted) count = std::min(count, size_t(atol(wanted)));
        void* start = mmap(nullptr, count * kStride, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (start == MAP_FAILED) continue;
        stacks_begin = reinterpret_cast<uint64_t>(start);
        stacks_bytes = count * kStride;
        return true;
    }
    return false;
}

// Makes the next stack usable. start: of its guard.
bool open_stack(char* start) {
    if (made < kGuarded) return mprotect(start + kGuardBytes, kStackBytes, PROT_READ | PROT_WRITE) == 0;
    if ((made - kGuarded) % kOpenedAtOnce != 0) return true;
    const size_t rest = stacks_begin + stacks_bytes - reinterpret_cast<uint64_t>(start);
    return mprotect(start, std::min(rest, kOpenedAtOnce * kStride), PROT_READ | PROT_WRITE) == 0;
}

}  // namespace

#if defined(__x86_64__)
asm(R"(
.macro keep_registers
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
.endm
.macro take_registers_and_return
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.endm
.text
.globl lk_switch
.hidden lk_switch
.type lk_switch,@function
lk_switch:
    keep_registers
    movq %rsp,(%rdi)
    movq %rsi,%rsp
    take_registers_and_return
.size lk_switch,.-lk_switch
.globl lk_enter
.hidden lk_enter
.type lk_enter,@function
lk_enter:
    keep_registers
    subq $8,%rsp
    movq %rsp,(%rdx)
    movq %rdi,%rax
    movq %rsi,%rdi
    callq *%rax
    addq $8,%rsp
    take_registers_and_return
.size lk_enter,.-lk_enter
)");

void reset_fiber(Fiber* fiber, void (*entry)()) {
    auto* stack = reinterpret_cast<uint64_t*>(reinterpret_cast<uint64_t>(fiber->top) & ~15ull);
    *--stack = 0;  // where entry() would return to: ends a debugger's backtrace, and aligns the stack as a call does
    *--stack = reinterpret_cast<uint64_t>(entry);
    for (int saved_register = 0; saved_register < 6; saved_register++) *--stack = 0;
    fiber->stack_pointer = stack;
}
#elif defined(__aarch64__)
asm(R"(
.macro keep_registers
    sub sp, sp, #160
    stp x19, x20, [sp, #0]
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
.endm
.macro take_registers_and_return
    ldp x19, x20, [sp, #0]
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    add sp, sp, #160
    ret
.endm
.text
.globl lk_switch
.hidden lk_switch
.type lk_switch,%function
lk_switch:
    keep_registers
    mov x9, sp
    str x9, [x0]
    mov sp, x1
    take_registers_and_return
.size lk_switch,.-lk_switch
.globl lk_enter
.hidden lk_enter
.type lk_enter,%function
lk_enter:
    keep_registers
    mov x9, sp
    str x9, [x2]
    mov x9, x0
    mov x0, x1
    blr x9
    take_registers_and_return
.size lk_enter,.-lk_enter
)");

void reset_fiber(Fiber* fiber, void (*entry)()) {
    constexpr size_t kSavedBytes = 160;
    constexpr size_t kReturnRegister = 88;  // x30
    char* stack = reinterpret_cast<char*>((reinterpret_cast<uint64_t>(fiber->top) & ~15ull) - kSavedBytes);
    memset(stack, 0, kSavedBytes);
    memcpy(stack + kReturnRegister, &entry, sizeof entry);
    fiber->stack_pointer = stack;
}
#else
#error "fibers are written for x86-64 and aarch64"
#endif

Fiber* make_fiber(void (*entry)()) {
    std::lock_guard lock(stacks_mutex);
    if (!shared.empty()) {
        Fiber* fiber = shared.back();
        shared.pop_back();
        reset_fiber(fiber, entry);
        return fiber;
    }
    if (!stacks_begin && !reserve_stacks()) return nullptr;
    if ((made + 1) * kStride > stacks_bytes) return nullptr;
    char* start = reinterpret_cast<char*>(stacks_begin) + made * kStride;
    if (!open_stack(start)) return nullptr;
    char* low = start + kGuardBytes;
    // Tops at different distances from a page boundary, or all stacks would compete for the same few cache sets. The fiber itself
    // lies above the top, in a line that the next switch has just brought in.
    constexpr size_t kStep = 320;
    constexpr size_t kSteps = 60;
    char* top = low + kStackBytes - 64 - made % kSteps * kStep;
    made++;
    auto* fiber = new (top) Fiber{nullptr, top, low};
    fiber->lowest = reinterpret_cast<uint64_t>(top);
    reset_fiber(fiber, entry);
    return fiber;
}

void share_fibers(std::vector<Fiber*>& free_fibers, size_t kept) {
    if (free_fibers.size() <= kept) return;
    std::lock_guard lock(stacks_mutex);
    shared.insert(shared.end(), free_fibers.begin() + ptrdiff_t(kept), free_fibers.end());
    free_fibers.resize(kept);
}

bool in_stack_guard(uint64_t address) {
    return address - stacks_begin < stacks_bytes && (address - stacks_begin) % kStride < kGuardBytes;
}

}  // namespace lk
