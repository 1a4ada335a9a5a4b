// faults.h: signals: what goes wrong in a kernel becomes a finding, and a kernel that spins lets others run.
#pragma once

#include <signal.h>

namespace lk {

// Sent to an OS thread that may be spinning, or is to stop.
constexpr int kInterrupt = SIGURG;

void install_fault_handlers();      // once in the process
void prepare_thread_for_faults();   // once on every thread of the pool

}  // namespace lk
