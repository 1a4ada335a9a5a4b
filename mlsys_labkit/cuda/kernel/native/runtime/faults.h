// faults.h: signals: what goes wrong in a kernel becomes a finding, and a kernel that spins lets others run.
#pragma once

#include <cstdint>

#include <signal.h>
#include <ucontext.h>

namespace lk {

// Where a signal met a thread.
#if defined(__x86_64__)
inline uint64_t program_counter(const ucontext_t& at) { return static_cast<uint64_t>(at.uc_mcontext.gregs[REG_RIP]); }
inline uint64_t stack_pointer(const ucontext_t& at) { return static_cast<uint64_t>(at.uc_mcontext.gregs[REG_RSP]); }
#else
inline uint64_t program_counter(const ucontext_t& at) { return at.uc_mcontext.pc; }
inline uint64_t stack_pointer(const ucontext_t& at) { return at.uc_mcontext.sp; }
#endif

// Sent to an OS thread that may be spinning, or is to stop.
constexpr int kInterrupt = SIGURG;

// What a fault of host code ends in; a program's own runner may say more than the system does.
extern void (*fault_outside_kernels)(int signal, siginfo_t* info, void* context);

void install_fault_handlers();      // once in the process
void prepare_thread_for_faults();   // once on every thread of the pool

}  // namespace lk
