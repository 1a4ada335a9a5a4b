// faults.cpp: signal handlers. They run on a stack of their own after a fault, since a fiber's may have overflowed, and on the
// fiber's stack after an interruption, so that the fiber can be left in the middle of it and gone on with later.
#include "faults.h"

#include <algorithm>
#include <cstdlib>

#include "device_memory.h"
#include "scheduler.h"

namespace lk {

namespace {

constexpr size_t kSignalStackBytes = 64 << 10;

constexpr int kFaults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP};

sigset_t faults() {
    sigset_t set;
    sigemptyset(&set);
    for (int signal : kFaults) sigaddset(&set, signal);
    return set;
}

// A function that has no room for its frame faults at its first instructions: where it was called says more.
u64 caller(const ucontext_t& context) {
#if defined(__x86_64__)
    return program_counter(context);  // the call itself needs the stack, and faults
#else
    return context.uc_mcontext.regs[30] - 1;
#endif
}

bool in_kernel_text(const Block& block, u64 pc) { return block.launch->module->text.holds(pc, 1); }

// Where in the kernel's code the fault is, or where that code called what faults: the nearest return address into it.
u64 place_in_kernel(const Block& block, u64 pc, u64 stack) {
    constexpr u64 kWords = 128;
    if (in_kernel_text(block, pc)) return pc + 1;
    u64 low = reinterpret_cast<u64>(block.thread->fiber->low);
    u64 top = reinterpret_cast<u64>(block.thread->fiber->top);
    const u64* word = reinterpret_cast<const u64*>(std::max(stack, low) & ~7ull);
    const u64* end = std::min(word + kWords, reinterpret_cast<const u64*>(top & ~7ull));
    word = std::find_if(word, end, [&](u64 value) { return in_kernel_text(block, value); });
    return word < end ? *word : 0;
}

void report_here(Block& block, FindingKind kind, u64 place, u64 address) {
    FindingRecord finding = make_finding(block, kind, block.thread_number, place);
    finding.address = address;
    if (const Buffer* near = address ? device_memory().nearest(address) : nullptr) {
        finding.begin = near->begin;
        finding.end = near->end;
    }
    block.launch->findings.try_report(finding);
}

void on_fault(int signal, siginfo_t* info, void* opaque) {
    const auto& context = *static_cast<const ucontext_t*>(opaque);
    Block* block = current();
    if (!block || !is_local(stack_pointer(context))) {
        fault_outside_kernels(signal, info, opaque);
        return;
    }
    u64 address = signal == SIGFPE ? 0 : reinterpret_cast<u64>(info->si_addr);
    bool overflow = in_stack_guard(address) || in_stack_guard(stack_pointer(context));
    FindingKind kind = signal == SIGFPE ? FindingKind::division_by_zero
                       : overflow       ? FindingKind::stack_overflow
                       : signal == SIGILL || signal == SIGTRAP ? FindingKind::trap
                                                               : FindingKind::illegal_address;
    const u64 pc = overflow ? caller(context) : program_counter(context);
    u64 place = place_in_kernel(*block, pc, stack_pointer(context));
    report_here(*block, kind, place, overflow ? 0 : address);
    const sigset_t set = faults();
    pthread_sigmask(SIG_UNBLOCK, &set, nullptr);  // the handler does not return: it switches away
    stop_launch(*block);
}

// Only the kernel's own code is interrupted: there the runtime holds no lock and is in no half-done state. The instrumented
// build looks at each basic block whether its turn is over, and is interrupted only to stop: gcc leaves an empty endless loop
// without a hook.
void on_interrupt(int, siginfo_t*, void* opaque) {
    Block* block = current_block;  // the runtime may be about to settle which thread runs
    if (!block || (block->mode != Mode::run && !stopped(*block))) return;
    u64 pc = program_counter(*static_cast<const ucontext_t*>(opaque));
    if (!in_kernel_text(*block, pc)) return;
    current()->thread->pc = pc + 1;
    if (stopped(*block)) stop_launch(*block);
    block->warp_budget = 0;
    pause(*block);
}

void die_as_without_handler(int signal, siginfo_t*, void*) {
    ::signal(signal, SIG_DFL);
    raise(signal);
}

}  // namespace

void (*fault_outside_kernels)(int signal, siginfo_t* info, void* context) = die_as_without_handler;

void install_fault_handlers() {
    struct sigaction action {};
    action.sa_sigaction = on_fault;
    // A kernel that has overwritten the thread's own data makes the handler fault, too. The system ends the process then,
    // because the signal is blocked; a handler that faulted again and again would run for ever.
    action.sa_mask = faults();
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    for (int signal : kFaults) sigaction(signal, &action, nullptr);
    action.sa_sigaction = on_interrupt;
    sigemptyset(&action.sa_mask);
    action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_RESTART;
    sigaction(kInterrupt, &action, nullptr);
}

void prepare_thread_for_faults() {
    stack_t stack{};
    stack.ss_sp = malloc(kSignalStackBytes);
    stack.ss_size = kSignalStackBytes;
    sigaltstack(&stack, nullptr);
}

}  // namespace lk
